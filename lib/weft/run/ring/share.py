"""A whole tensor's tokens dealt to ranks, and gathered again."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from weft.plan.arguments import chosen
from weft.plan.collectives import ring_all_gather
from weft.plan.ring import LAYOUTS, held
from weft.run.collectives import Group, agreed, group_rank_size, run
from weft.run.ring.attention import check_shares
from weft.run.ring.exchange import place, taken


def shard(x: Tensor, world: Group, layout: str = "zigzag", dim: int = 1) -> Tensor:
    """This rank's tokens of a whole tensor, which every rank has alike; dim `dim` is time.

    Nothing is sent. In backward the gradients of all ranks' tokens are gathered, so that the
    whole tensor's is whole, and the same, on every rank.

    ValueError where there are fewer tokens than ranks, or a layout or dim that is none.
    """
    group, rank, n = group_rank_size(world)
    dim = _checked(x, layout, dim)
    return _Shard.apply(x, group, rank, held(x.shape[dim], n, layout), dim)


def unshard(x: Tensor, world: Group, layout: str = "zigzag", dim: int = 1) -> Tensor:
    """All ranks' tokens in their order, on every rank; dim `dim` is time.

    A ring passes them on. In backward every rank has the whole gradient, the same on all, and
    takes its own tokens' from it: what is computed of the whole is computed alike everywhere.

    ValueError, on all ranks, where their tokens are not those of the layout.
    """
    group, rank, _ = group_rank_size(world)
    at = 0

    def mine() -> tuple[int, dict]:
        nonlocal at
        at = _checked(x, layout, dim)
        others = [size for i, size in enumerate(x.shape) if i != at]
        form = {"dim": at, "x's other sizes": others, "x's dtype": str(x.dtype)}
        return x.shape[at], form | {"layout": layout, "x's requires_grad": x.requires_grad}

    counts = agreed(group, mine)
    check_shares("x", counts, layout)
    return _Unshard.apply(x, group, rank, held(sum(counts), len(counts), layout), at)


class _Shard(Function):
    @staticmethod
    def forward(ctx, x, *how):
        ctx.how = how
        _, rank, spans, dim = how
        return taken(x, spans[rank], dim).clone(memory_format=torch.contiguous_format)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gathered(gradient, *ctx.how), None, None, None, None


class _Unshard(Function):
    @staticmethod
    def forward(ctx, x, *how):
        ctx.how = how
        return gathered(x, *how)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        _, rank, spans, dim = ctx.how
        return taken(gradient, spans[rank], dim), None, None, None, None


def gathered(x: Tensor, group, rank: int, spans, dim: int) -> Tensor:
    """Every rank's tokens, in their order."""
    counts = [sum(map(len, mine)) for mine in spans]
    shape = list(x.shape)
    size = x.numel() // counts[rank]
    parts = {r: x.new_empty(count * size) for r, count in enumerate(counts) if r != rank}
    parts[rank] = x.detach().flatten()
    if len(counts) > 1:
        run(ring_all_gather(len(counts)), parts, group)
    shape[dim] = sum(counts)
    found = x.new_empty(shape)
    for r, count in enumerate(counts):
        shape[dim] = count
        place(found, spans[r], parts[r].view(shape), dim)
    return found


def _checked(x: Tensor, layout: str, dim: int) -> int:
    """The dim of time, from 0 on."""
    if not isinstance(x, Tensor) or x.is_meta:
        given = f"on {x.device}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise ValueError(f"x is {given}, must be a tensor with data")
    chosen("layout", layout, LAYOUTS)
    if isinstance(dim, bool) or dim not in range(-x.dim(), x.dim()):
        raise ValueError(f"dim is {dim!r}, must be a dim of x, whose shape is {list(x.shape)}")
    return int(dim) % x.dim()
