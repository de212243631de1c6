"""Tensor parallelism measured: a step beside torch's own, and a slow wire behind matmuls."""

from weft.bench.tensor.link import LINK
from weft.bench.tensor.peers import STEP, cut_by_torch

JOBS = (STEP, LINK)

__all__ = ["JOBS", "cut_by_torch"]
