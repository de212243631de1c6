"""ZeRO measured: steps and memory beside torch's own, and bytes beside formula and plan."""

from weft.bench.zero.bytes import BYTES
from weft.bench.zero.peers import GPT2_PEAK, GPT2_STEP, PEAK, STEP

JOBS = (STEP, PEAK, GPT2_STEP, GPT2_PEAK, BYTES)

__all__ = ["JOBS"]
