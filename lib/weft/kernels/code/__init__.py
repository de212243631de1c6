"""Kernels as machine code, without the machine: compiled by name, and their loops counted."""

from weft.kernels.code.compile import TARGETS, compile_for
from weft.kernels.code.compiled import Compiled, Pass
from weft.kernels.code.digest import source
from weft.kernels.code.loops import UNITS, Instruction, Loop, hot, instructions, loops, plain
from weft.kernels.code.record import launch, recorded_target, recording, written

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
    "launch",
    "loops",
    "plain",
    "recorded_target",
    "recording",
    "source",
    "written",
]
