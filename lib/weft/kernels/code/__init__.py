"""Kernels as machine code, without the machine: compiled by name, and their loops counted."""

from weft.kernels.code.compile import TARGETS, Compiled, Pass, compile_for
from weft.kernels.code.loops import UNITS, Instruction, Loop, hot, instructions, loops, plain

__all__ = [
    "TARGETS",
    "UNITS",
    "Compiled",
    "Instruction",
    "Loop",
    "Pass",
    "compile_for",
    "hot",
    "instructions",
    "loops",
    "plain",
]
