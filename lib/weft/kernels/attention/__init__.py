"""Attention in Triton: FlashAttention-2, and the versions before it.

Kernels of other topics that read heads of rows take the view of them from here, and the checks.
"""

from weft.kernels.attention.face import NoSecondDerivative, attention, passes
from weft.kernels.attention.launch import TYPES, in_rows
from weft.kernels.attention.tile import LN2, LOG2E, View, head, padded, row_pointer
from weft.kernels.attention.tuned import INTERPRETER, WIDEST, chip

__all__ = [
    "INTERPRETER",
    "LN2",
    "LOG2E",
    "TYPES",
    "WIDEST",
    "NoSecondDerivative",
    "View",
    "attention",
    "chip",
    "head",
    "in_rows",
    "padded",
    "passes",
    "row_pointer",
]
