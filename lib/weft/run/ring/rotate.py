"""The ring: queries stay where they are, keys and values go round, and their gradients after them.

A phase's messages are posted together before the rank computes, and awaited after: what is sent is
hidden behind what is computed, and no rank waits for one that waits for it. Besides its own a rank
has two blocks of keys and values: the one that it computes with, and the next, which is coming.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from weft.plan.attention import Sizes
from weft.plan.collectives import Send
from weft.plan.ring.hops import backward_hops, forward_hops
from weft.plan.ring.visible import Rectangle
from weft.run.ring.blocks import BlockKernel, QueryRows, attend, attend_backward, first

Held = dict[int, Tensor]  # blocks by their home, each in one piece of memory
KEYS, SUMS = False, True  # what a message carries: keys and values, or the gradients of them


@dataclass(frozen=True)
class Rotation:
    """A ring as one of its ranks sees it.

    `lengths` are the tokens of each rank, `visits` the ranks that each block goes to, from its home
    on, and `visible` the rectangles of this rank's queries and each block's keys.
    """

    group: dist.ProcessGroup | None
    rank: int
    sizes: Sizes
    lengths: Sequence[int]
    visits: Sequence[Sequence[int]]
    visible: Sequence[Sequence[Rectangle]]
    kernel: BlockKernel

    def pack(self, k: Tensor, v: Tensor) -> Tensor:
        """A block in one piece of memory, so that it is one message."""
        return torch.cat([k.flatten(), v.flatten()])

    def room(self, block: int, like: Tensor) -> Tensor:
        """Memory for a block."""
        B, G, K, V = self.sizes.B, self.sizes.G, self.sizes.K, self.sizes.V
        return like.new_empty(B * self.lengths[block] * G * (K + V))

    def unpack(self, block: int, packed: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [B, S, G, K] and values [B, S, G, V] of a block, or their gradients: views."""
        B, G, K, V = self.sizes.B, self.sizes.G, self.sizes.K, self.sizes.V
        here = B * self.lengths[block] * G
        keys, values = packed.split([here * K, here * V])
        return keys.view(B, -1, G, K), values.view(B, -1, G, V)


class RingAttention(Function):
    """This rank's rows of attention over the keys and values of all ranks."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, ring: Rotation) -> Tensor:
        phases = forward_hops(ring.visits)
        held = {ring.rank: ring.pack(k, v)} if phases else {}
        for i, phase in enumerate([*phases, []]):
            coming, messages = post(phase, ring, {KEYS: held}, {KEYS: k})
            if i == 0:
                o, lse = first(q, k, v, ring.visible[ring.rank], ring.kernel)
            else:
                _attend_all(o, lse, q, ring, held)
            wait(messages)
            held = coming[KEYS]
        o = o.to(q.dtype)
        ctx.ring = ring
        ctx.save_for_backward(q, k, v, o, lse)
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx, do: Tensor):
        (q, k, v, o, lse), ring = ctx.saved_tensors, ctx.ring
        dq, rows = torch.zeros_like(q, dtype=lse.dtype), QueryRows.of(o, lse, do)
        phases = backward_hops(ring.visits)
        held: Held = {ring.rank: ring.pack(k, v)} if phases else {}
        sums: Held = {}
        home: Tensor | None = None
        for i, phase in enumerate(phases or [[]]):
            coming, messages = post(phase, ring, {KEYS: held, SUMS: sums}, {KEYS: k, SUMS: dq})
            if i + 1 >= len(phases):
                sums = {ring.rank: _given(dq, rows, q, ring, ring.rank, (k, v))}
            else:
                sums = _given_all(dq, rows, q, ring, held if i else {})
            wait(messages)
            held = coming[KEYS]
            for block, far in coming[SUMS].items():
                if block == ring.rank:
                    home = far
                else:
                    sums[block] += far
        mine = sums[ring.rank]
        dk, dv = ring.unpack(ring.rank, mine if home is None else mine.add_(home))
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None


def _attend_all(o: Tensor, lse: Tensor, q: Tensor, ring: Rotation, held: Held) -> None:
    """Merge attention over the blocks that are here into o and lse."""
    for block, packed in held.items():
        attend(o, lse, q, *ring.unpack(block, packed), ring.visible[block], ring.kernel)


def _given_all(dq: Tensor, rows: QueryRows, q: Tensor, ring: Rotation, held: Held) -> Held:
    """What this rank's queries give the blocks that are here."""
    return {
        block: _given(dq, rows, q, ring, block, ring.unpack(block, packed))
        for block, packed in held.items()
    }


def _given(
    dq: Tensor, rows: QueryRows, q: Tensor, ring: Rotation, block: int, keys: tuple[Tensor, Tensor]
) -> Tensor:
    """The gradients that this rank's queries give a block, packed; dq gets what comes back."""
    found = ring.room(block, dq).zero_()
    gradients = ring.unpack(block, found)
    attend_backward(dq, *gradients, rows, q, *keys, ring.visible[block], ring.kernel)
    return found


def post(
    phase: Sequence[Send], ring: Rotation, going: dict[bool, Held], like: dict[bool, Tensor]
) -> tuple[dict[bool, Held], list[dist.Work]]:
    """Begin a phase's messages, all at once: what will have come, and what to wait for."""
    coming: dict[bool, Held] = {KEYS: {}, SUMS: {}}
    calls = []
    for send in phase:
        if send.source == ring.rank:
            calls.append((dist.isend, going[send.reduce][send.chunk], send.target))
        elif send.target == ring.rank:
            room = ring.room(send.chunk, like[send.reduce])
            coming[send.reduce][send.chunk] = room
            calls.append((dist.irecv, room, send.source))
    messages = [
        dist.P2POp(call, packed.view(torch.uint8), group=ring.group, group_peer=peer)
        for call, packed, peer in calls
    ]
    return coming, dist.batch_isend_irecv(messages) if messages else []


def wait(messages: list[dist.Work]) -> None:
    """Return when all have gone and come; nothing holds what they carried any more."""
    while messages:
        messages.pop().wait()
