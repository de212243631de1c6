"""Offload measured: the disk, the step that streams, Adam on a processor, and a whole training."""

from weft.bench.offload.adam import ADAM
from weft.bench.offload.disk import DISK
from weft.bench.offload.step import STEP
from weft.bench.offload.training import TRAINING

JOBS = (DISK, STEP, ADAM, TRAINING)

__all__ = ["JOBS"]
