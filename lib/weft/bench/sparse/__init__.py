"""Sparse attention measured: windows on a GPU beside their peers, and growing ones in a decoder."""

from weft.bench.sparse.growing import GROWING
from weft.bench.sparse.on_gpu import WINDOW

JOBS = (WINDOW, GROWING)

__all__ = ["JOBS"]
