"""FlashAttention-3 measured: how fast on a Hopper GPU, and how exact on any machine."""

from weft.bench.hopper.rmse import ACCURACY
from weft.bench.hopper.speed import SPEED

JOBS = (*SPEED, ACCURACY)

__all__ = ["JOBS"]
