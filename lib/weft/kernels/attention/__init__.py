"""Attention in Triton: FlashAttention-2, and the versions before it."""

from weft.kernels.attention.face import NoSecondDerivative, attention, passes
from weft.kernels.attention.tile import LN2, LOG2E, padded

__all__ = [
    "LN2",
    "LOG2E",
    "NoSecondDerivative",
    "attention",
    "padded",
    "passes",
]
