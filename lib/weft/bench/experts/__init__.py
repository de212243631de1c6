"""Experts measured: their MLP on a GPU beside its peers."""

from weft.bench.experts.on_gpu import GROUPED

JOBS = (GROUPED,)

__all__ = ["JOBS"]
