"""Gluon on a laptop: what a kernel of this book computes, and whether its barriers hold.

Triton interprets Triton, not Gluon. This does it for the words of `weft.kernels.gluon`: the same
Python functions run, on torch tensors. Each group of warps is a thread, and only one of them moves
at a time. Which one, a seed decides, at every word that has to do with other warps. Copies and
products land late, at a time that the seed picks too. So a barrier that is missing shows as a
wrong number or as a complaint, and one too many as a BarrierDeadlock that names who waits for what.

Complaints: a tile is overwritten while a product or a copy reads it; it is read before it has
landed; threads' stores are read by the copy engine or the tensor cores without a fence; a result
is used before it was waited for; a barrier gets more arrivals than it was made for; memory outside
of a tensor is touched; something is still under way at the end.

Not seen: layouts and registers, which compiling checks, and the warps within a group, which here
move as one: that they meet before one of them arrives at a barrier for all, a test of the compiled
code checks (`lib/tests/test_hopper_arrivals.py`).
"""

import random
from collections.abc import Sequence

from torch import Tensor
from triton.runtime.jit import JITFunction

from weft.kernels.gluon import words as gluon
from weft.kernels.gluon.interpreter.memory import Described, Pointer
from weft.kernels.gluon.interpreter.scheduler import BarrierDeadlock, BlockRun, Fault
from weft.kernels.gluon.interpreter.words import Words

__all__ = ["BarrierDeadlock", "Fault", "run"]


def run(kernel: JITFunction, grid: int, args: Sequence, seed: int = 0, **constexprs) -> None:
    """Run a kernel as `kernel[(grid,)](*args, **constexprs)` would on a GPU.

    Tensors are read and written in place; descriptors describe tensors of the CPU. The seed
    chooses who moves and what lands when; every choice must give the same result. Raises Fault
    with what the kernel did, and where.
    """
    bound = [_argument(arg) for arg in args]
    named = {name: _argument(value) for name, value in constexprs.items()}
    for program in range(grid):
        block = BlockRun(program, grid, random.Random(f"{seed} {program}"))
        words = {id(key): value for key, value in Words(block).table()}
        block.run(kernel, bound, named, words)


def _argument(value):
    if isinstance(value, gluon.TensorDescriptor):
        return Described(value)
    if isinstance(value, Tensor):
        return Pointer(value, 0)
    return value
