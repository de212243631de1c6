"""Rows on their way to other ranks, and their gradients on the way back, while ranks compute.

An all-to-all is two operations for autograd, `Depart` and `Arrive`. What is computed between them
is computed while rows travel. In backward `Arrive` sends the gradients off and `Depart` awaits
them; of what is ready autograd runs first what was made last, so that the backward of what was
computed between the two comes between them again.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Journey:
    """An all-to-all in a group: how many rows go to each rank, how many come, and the way back."""

    def __init__(self, group: dist.ProcessGroup, send: Sequence[int], receive: Sequence[int]):
        self.group, self.send, self.receive = group, list(send), list(receive)
        self._flying: tuple[dist.Work, Tensor, Tensor] | None = None

    def begin(self, rows: Tensor, back: bool = False) -> Tensor:
        """Send rows [sum(send), D] off; the memory [sum(receive), D] into which others' will come.

        As bytes, so that a backend need not know the dtype.
        """
        send, receive = (self.receive, self.send) if back else (self.send, self.receive)
        rows = rows.contiguous()
        coming = rows.new_empty(sum(receive), rows.shape[1])
        both = (x.view(torch.uint8) for x in (coming, rows))
        work = dist.all_to_all_single(*both, receive, send, self.group, async_op=True)
        self._flying = work, rows, coming
        return coming

    def end(self) -> Tensor:
        """Wait until all have come and gone: what has come."""
        work, _, coming = self._flying
        work.wait()
        self._flying = None
        return coming


class Depart(Function):
    """Rows sent off; what is returned is theirs who have sent it when it has arrived."""

    @staticmethod
    def forward(ctx, rows: Tensor, journey: Journey) -> Tensor:
        ctx.journey = journey
        return journey.begin(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        return ctx.journey.end(), None


class Arrive(Function):
    """Rows that have come."""

    @staticmethod
    def forward(ctx, coming: Tensor, journey: Journey) -> Tensor:
        journey.end()
        ctx.journey = journey
        ctx.mark_dirty(coming)
        return coming

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        ctx.journey.begin(gradient, back=True)
        return gradient, None  # of the right shape; the other ranks' comes out of Depart
