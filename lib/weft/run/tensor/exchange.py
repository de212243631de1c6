"""Activations between t ranks: summed, gathered along time, or summed and scattered along it.

With matmuls beside: a ring's hops, and pieces of a matmul that go on meanwhile. Every hop passes a
rank's T / t tokens to the next rank, so the bytes are those of the collective that it replaces.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from weft.run.collectives import Group, group_rank_size, reduce_scatter

Matmul = Callable[[Tensor], Tensor]


class TensorRanks:
    """The ranks over which matrices are cut, and how what lies between them is exchanged.

    With `checks` they tell each other in each forward what they were given.
    """

    def __init__(
        self,
        world: Group,
        sequence_parallel: bool = False,
        overlap: bool = False,
        checks: bool = True,
    ):
        self.group, self.rank, self.n = group_rank_size(world)
        self.checks = checks
        self.sequence_parallel, self.overlap = sequence_parallel, overlap
        if overlap and not sequence_parallel:
            raise ValueError("overlap is True, must be False without sequence_parallel")

    def sum(self, x: Tensor) -> dist.Work | None:
        """Begin to make x the sum of all ranks'; what to wait for."""
        return dist.all_reduce(x, group=self.group, async_op=True) if self.n > 1 else None

    def summed(self, x: Tensor) -> Tensor:
        """x, made the sum of all ranks'."""
        if work := self.sum(x):
            work.wait()
        return x

    def part(self, x_BTD: Tensor) -> Tensor:
        """This rank's tokens, [B, T/t, D]."""
        return x_BTD.chunk(self.n, 1)[self.rank].contiguous()

    def gather(self, x_BTD: Tensor) -> Tensor:
        """[B, T/t, D] to [B, T, D]."""
        if self.n == 1:
            return x_BTD
        x_BTD = x_BTD.contiguous()
        parts = [torch.empty_like(x_BTD) for _ in range(self.n)]
        dist.all_gather(parts, x_BTD, group=self.group)
        return torch.cat(parts, 1)

    def scatter(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D], of which each rank has a summand, to this rank's tokens of the sum."""
        if self.n == 1:
            return x_BTD
        parts = x_BTD.unflatten(1, (self.n, -1)).transpose(0, 1)  # the t parts come first
        return reduce_scatter(parts, self.group)[0]

    def gather_matmul(self, x_BTD: Tensor, matmul: Matmul) -> tuple[Tensor, Tensor]:
        """What was gathered, and a matmul of it; each part is computed while the next one comes."""
        parts, made, part = [None] * self.n, [None] * self.n, x_BTD.contiguous()
        for step in range(self.n):
            works, coming = self._hop(part) if step < self.n - 1 else ([], part)
            owner = (self.rank - step) % self.n
            parts[owner], made[owner] = part, matmul(part)
            for work in works:
                work.wait()
            part = coming
        return torch.cat(parts, 1), torch.cat(made, 1)

    def matmul_scatter(self, x_BTD: Tensor, matmul: Matmul) -> Tensor:
        """A matmul, summed and scattered; each part is computed while the sum before it comes."""
        parts = x_BTD.chunk(self.n, 1)
        total = matmul(parts[(self.rank - 1) % self.n])
        for step in range(self.n - 1):
            works, coming = self._hop(total.contiguous())
            made = matmul(parts[(self.rank - 2 - step) % self.n])
            for work in works:
                work.wait()
            total = coming + made
        return total

    def _hop(self, x: Tensor) -> tuple[list[dist.Work], Tensor]:
        """Begin to pass x to the next rank: what to wait for, and what will have come."""
        coming = torch.empty_like(x)
        after, before = (self.rank + 1) % self.n, (self.rank - 1) % self.n
        messages = [
            dist.P2POp(dist.irecv, coming.view(torch.uint8), group=self.group, group_peer=before),
            dist.P2POp(dist.isend, x.view(torch.uint8), group=self.group, group_peer=after),
        ]
        return dist.batch_isend_irecv(messages), coming
