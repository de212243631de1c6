"""ZeRO: data parallel training in which each rank keeps only a part of the state."""

from weft.run.zero.sharded import BUCKET, DataParallel
from weft.run.zero.wrap import STAGES, Zero

__all__ = [
    "BUCKET",
    "STAGES",
    "DataParallel",
    "Zero",
]
