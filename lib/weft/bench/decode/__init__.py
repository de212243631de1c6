"""Decoding measured: the kernels on a GPU, one more token, and what two caches hold."""

from weft.bench.decode.generation import GENERATION
from weft.bench.decode.kernel import KERNEL
from weft.bench.decode.queue import MEMORY

JOBS = (KERNEL, GENERATION, MEMORY)

__all__ = ["JOBS"]
