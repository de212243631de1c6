"""Attention in Triton: FlashAttention-2, and the versions before it.

Kernels of other topics that read heads of rows take the view of them from here, and the checks;
block-sparse attention, which is FlashAttention-2 along a list, also what a tile and a call are.
"""

from weft.kernels.attention.backward import by_rows
from weft.kernels.attention.face import Forward, NoSecondDerivative, attention, passes
from weft.kernels.attention.launch import TYPES, Problem, in_rows, problem, view
from weft.kernels.attention.tile import (
    LN2,
    LOG2E,
    View,
    head,
    load_rows,
    load_tile,
    padded,
    program,
    row_pointer,
    store_rows,
    store_tile,
)
from weft.kernels.attention.tuned import INTERPRETER, WIDEST, KernelTile, chip

__all__ = [
    "INTERPRETER",
    "LN2",
    "LOG2E",
    "TYPES",
    "WIDEST",
    "Forward",
    "KernelTile",
    "NoSecondDerivative",
    "Problem",
    "View",
    "attention",
    "by_rows",
    "chip",
    "head",
    "in_rows",
    "load_rows",
    "load_tile",
    "padded",
    "passes",
    "problem",
    "program",
    "row_pointer",
    "store_rows",
    "store_tile",
    "view",
]
