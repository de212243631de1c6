"""Attention in Triton: FlashAttention-2, and the versions before it."""

from weft.kernels.attention.call import Last
from weft.kernels.attention.face import attention, passes
from weft.kernels.attention.tile import LN2, LOG2E

__all__ = [
    "LN2",
    "LOG2E",
    "Last",
    "attention",
    "passes",
]
