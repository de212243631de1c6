"""Linear attention measured: what a state recalls, and what decoding with one costs."""

from weft.bench.linear.decode import DECODE
from weft.bench.linear.delta import DELTA
from weft.bench.linear.kernels import KERNELS
from weft.bench.linear.recall import RECALL

JOBS = (RECALL, DECODE, *KERNELS, *DELTA)

__all__ = ["JOBS"]
