"""ZeRO measured: steps and memory beside torch's own, and bytes beside formula and plan."""

from weft.bench.zero.bytes import BYTES
from weft.bench.zero.peers import PEAK, STEP

JOBS = (STEP, PEAK, BYTES)

__all__ = ["JOBS"]
