"""The two ways beside the ring: all heads dealt out for whole sequences, and all keys gathered.

Ulysses: an all-to-all gives each rank whole sequences of some heads, and another takes the output
back, so that any attention works unchanged between them. Jacobs et al. 2023.

Gather: every rank gets all keys and values and computes the rows of its queries; in backward the
gradients of keys and values are summed by a reduce-scatter. It is what Llama 3 was trained with.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from weft.plan.collectives import ring_all_gather, ring_reduce_scatter
from weft.plan.ring.layouts import Spans
from weft.run.collectives import run
from weft.run.ring.blocks import QueryRows, attend, attend_backward, begin
from weft.run.ring.rotate import RingAttention, Rotation, wait

# --- Ulysses --------------------------------------------------------------------------------------


def ulysses(
    q: Tensor, k: Tensor, v: Tensor, ring: Rotation, alone: Rotation, held: Sequence[Spans]
) -> Tensor:
    """This rank's rows of attention; between the exchanges it is a ring of one rank, `alone`."""
    some = _ToHeads.apply(ring, held, q, k, v)
    return _ToTokens.apply(ring, held, RingAttention.apply(*some, alone))[0]


class _ToHeads(Function):
    """From this rank's tokens of all heads to all tokens, in their order, of this rank's heads."""

    @staticmethod
    def forward(ctx, ring: Rotation, held: Sequence[Spans], *some: Tensor):
        ctx.how = ring, held
        return to_heads(ring, held, some)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor):
        return None, None, *to_tokens(*ctx.how, gradients)


class _ToTokens(Function):
    """The way back."""

    @staticmethod
    def forward(ctx, ring: Rotation, held: Sequence[Spans], *some: Tensor):
        ctx.how = ring, held
        return to_tokens(ring, held, some)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor):
        return None, None, *to_heads(*ctx.how, gradients)


def to_heads(ring: Rotation, held: Sequence[Spans], some: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """[B, T/n, H, K] to [B, T, H/n, K], of several tensors with one message to each rank."""
    n, T = len(held), sum(ring.lengths)
    parts = [[x.chunk(n, dim=2)[rank] for x in some] for rank in range(n)]
    forms = [[(x.shape[0], c, x.shape[2] // n, x.shape[3]) for x in some] for c in ring.lengths]
    found = _exchanged(ring, parts, forms)
    whole = tuple(x.new_empty(x.shape[0], T, x.shape[2] // n, x.shape[3]) for x in some)
    for spans, came in zip(held, found, strict=True):
        for into, x in zip(whole, came, strict=True):
            place(into, spans, x)
    return whole


def to_tokens(ring: Rotation, held: Sequence[Spans], some: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """[B, T, H/n, K] to [B, T/n, H, K], of several tensors with one message to each rank."""
    n, mine = len(held), ring.lengths[ring.rank]
    parts = [[taken(x, spans) for x in some] for spans in held]
    forms = [[(x.shape[0], mine, *x.shape[2:]) for x in some]] * n
    found = _exchanged(ring, parts, forms)
    return tuple(torch.cat(heads, dim=2) for heads in zip(*found, strict=True))


def _exchanged(
    ring: Rotation, parts: Sequence[Sequence[Tensor]], forms: Sequence[Sequence[tuple[int, ...]]]
) -> list[list[Tensor]]:
    """What each rank has for this one, in these forms, for the parts that it gets."""
    going = [torch.cat([x.flatten() for x in some]) for some in parts]
    counts = [[torch.Size(form).numel() for form in some] for some in forms]
    coming = [x.new_empty(sum(some)) for x, some in zip(going, counts, strict=True)]
    coming[ring.rank] = going[ring.rank]
    messages = [
        dist.P2POp(call, packed[peer].view(torch.uint8), group=ring.group, group_peer=peer)
        for peer in range(len(parts))
        if peer != ring.rank
        for call, packed in ((dist.irecv, coming), (dist.isend, going))
    ]
    wait(dist.batch_isend_irecv(messages) if messages else [])
    return [
        [x.view(form) for x, form in zip(packed.split(some), its, strict=True)]
        for packed, some, its in zip(coming, counts, forms, strict=True)
    ]


def taken(x: Tensor, spans: Spans, dim: int = 1) -> Tensor:
    """The tokens of a rank, from all of them in their order."""
    parts = [x[(slice(None),) * dim + (slice(s.start, s.stop, s.step),)] for s in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def place(whole: Tensor, spans: Spans, x: Tensor, dim: int = 1) -> None:
    """Put the tokens of a rank where they belong."""
    for span, part in zip(spans, x.split([len(s) for s in spans], dim), strict=True):
        whole[(slice(None),) * dim + (slice(span.start, span.stop, span.step),)] = part


# --- gather ---------------------------------------------------------------------------------------


class GatheredAttention(Function):
    """This rank's rows of attention over keys and values that all have gathered and keep."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, ring: Rotation) -> Tensor:
        o, lse = begin(q, v)
        n = len(ring.lengths)
        held = {block: ring.room(block, k) for block in range(n) if block != ring.rank}
        held[ring.rank] = ring.pack(k, v)
        if n > 1:
            run(ring_all_gather(n), held, ring.group)
        for block, packed in held.items():
            attend(o, lse, q, *ring.unpack(block, packed), ring.visible[block], ring.kernel)
        o = o.to(q.dtype)
        ctx.ring = ring
        ctx.save_for_backward(q, o, lse, *(held[block] for block in range(n)))
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx, do: Tensor):
        (q, o, lse, *held), ring = ctx.saved_tensors, ctx.ring
        dq, rows = torch.zeros_like(q, dtype=lse.dtype), QueryRows.of(o, lse, do)
        sums = {block: ring.room(block, dq).zero_() for block in range(len(held))}
        for block, packed in enumerate(held):
            gradients, keys = ring.unpack(block, sums[block]), ring.unpack(block, packed)
            attend_backward(dq, *gradients, rows, q, *keys, ring.visible[block], ring.kernel)
        if len(held) > 1:
            run(ring_reduce_scatter(len(held)), sums, ring.group)
        dk, dv = ring.unpack(ring.rank, sums[ring.rank])
        return dq.to(q.dtype), dk.to(held[0].dtype), dv.to(held[0].dtype), None
