"""Sparse attention measured: windows that grow by layer, in a small decoder."""

from weft.bench.sparse.growing import GROWING

JOBS = (GROWING,)

__all__ = ["JOBS"]
