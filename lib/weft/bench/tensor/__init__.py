"""Tensor parallelism measured: a step beside torch's own, a slow wire, and the fused layers."""

from weft.bench.tensor.link import LINK
from weft.bench.tensor.on_gpu import FUSED
from weft.bench.tensor.peers import STEP, cut_by_torch

JOBS = (*FUSED, STEP, LINK)

__all__ = ["JOBS", "cut_by_torch"]
