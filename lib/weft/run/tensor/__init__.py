"""Tensor parallelism: matrices cut over ranks, and between them tokens cut over the same ranks."""

from weft.run.tensor.linear import ColumnLinear, RowLinear
from weft.run.tensor.model import parallelize
from weft.run.tensor.vocabulary import cross_entropy
from weft.run.tensor.whole import CutTensor, cuts, gradient_norm, load, whole

__all__ = [
    "ColumnLinear",
    "CutTensor",
    "RowLinear",
    "cross_entropy",
    "cuts",
    "gradient_norm",
    "load",
    "parallelize",
    "whole",
]
