"""Block-sparse attention, and Longformer's as a mask given to it."""

from functools import partial

import torch
from torch import Tensor

from weft.kernels.attention import Problem, attention, problem
from weft.kernels.code import Pass, recording
from weft.kernels.sparse.dilation import by_residue
from weft.kernels.sparse.launch import Sight, attend
from weft.kernels.sparse.lists import (
    lists,
    seen_by_layout,
    seen_by_window,
    unit,
    window_lists,
)
from weft.kernels.sparse.rule import LayoutView, WindowView
from weft.plan.sparse import check_layout, check_longformer


def block_sparse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Tensor,
    block: int,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Attention within the blocks that a layout allows, as weft.ref.sparse defines it.

    The kernel's squares have 128 rows: a block of which none is in a square that counts is neither
    read nor computed, so blocks much smaller than that save little. On a GPU the host waits once,
    for the lengths of the lists. For fp16, bf16 and fp32 and heads of up to 256.
    """
    check_layout(q, k, v, layout, block, scale)
    x = problem(q, k, v, causal, scale, None)
    return attend(x, allowed(x, layout, block))


def allowed(x: Problem, layout: Tensor, block: int) -> Sight:
    """What a layout [H or 1, T / block, S / block] allows: lists of squares, and their mask."""
    size = unit(x.target)
    seen = seen_by_layout(x.sizes.T, x.sizes.S, size, layout, block, x.causal)
    h, r, c = (0 if n == 1 else s for n, s in zip(layout.shape, layout.stride(), strict=True))
    told = LayoutView(layout.view(torch.uint8), h, r, c, block)
    return Sight(lists(seen), size, layout=told)


def longformer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    dilation: int = 1,
    causal: bool = False,
    scale: float | None = None,
    global_mask: Tensor | None = None,
    global_q: Tensor | None = None,
    global_k: Tensor | None = None,
    global_v: Tensor | None = None,
) -> Tensor:
    """A window of keys around each query and global tokens, as weft.ref.sparse defines it.

    A dilated window is a plain one over the tokens of each residue (weft.kernels.sparse.dilation).
    Rows of global tokens see everything: they are gathered, attended to densely and put back. With
    a `global_mask` the host waits for what is in it; without one nothing is waited for. For fp16,
    bf16 and fp32 and heads of up to 256.
    """
    check_longformer(q, k, v, window, dilation, scale, global_mask, global_q, global_k, global_v)
    x = problem(q, k, v, causal, scale, None)
    T, size, reach = x.sizes.T, unit(x.target), window * dilation
    if global_mask is None and dilation > 1 and dilation * size <= T:
        return by_residue(
            partial(longformer, window=window, causal=causal, scale=scale), dilation, q, k, v
        )
    if global_mask is None:
        listed = window_lists(T, size, reach, dilation, x.causal, q.device)
        return attend(x, Sight(listed, size, window=WindowView(reach, dilation, None, 0)))
    seen = seen_by_window(T, size, reach, dilation, x.causal, global_mask)
    keys = global_mask.contiguous().view(torch.uint8)
    told = WindowView(reach, dilation, keys, keys.stride(0))
    local = attend(x, Sight(lists(seen), size, window=told))
    given = (y if y is not None else z for y, z in ((global_q, q), (global_k, k), (global_v, v)))
    return global_rows(local, *given, global_mask, x.causal, scale)


def global_rows(
    o: Tensor, q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, causal: bool, scale: float | None
) -> Tensor:
    """o with the rows where `chosen` [B, T] is True replaced by dense attention.

    Batches have different numbers of them: shorter ones are filled up with rows that are computed
    and then dropped.
    """
    most = int(chosen.sum(1).max())
    if most == 0:
        return o
    where = chosen.int().argsort(dim=1, descending=True, stable=True)[:, :most]  # [B, most]

    def spread(x: Tensor) -> Tensor:
        return where[:, :, None, None].expand(-1, -1, *x.shape[2:])

    mask = None
    if causal:
        mask = (torch.arange(k.shape[1], device=q.device) <= where.unsqueeze(-1)).unsqueeze(1)
    rows = attention(q.gather(1, spread(q)), k, v, scale=scale, mask=mask)
    placed = torch.zeros_like(o).scatter(1, spread(o), rows)
    return torch.where(chosen[:, :, None, None], placed, o)


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The kernels of the forward and the backward pass, as they are launched on a chip."""
    return launched(target, **kind)


def launched(
    target: str,
    dtype: torch.dtype = torch.bfloat16,
    width: int = 128,
    window: int = 1023,
    layout: bool = False,
    only: tuple[str, ...] = (),
) -> tuple[Pass, ...]:
    """Those for a causal window of 4096 tokens in 16 heads, or for a layout, or `only` some.

    A window needs no memory at all; of a layout the lists are made from what is in it.
    """
    device = "cpu" if layout else "meta"
    q, k, v = (
        torch.empty(2, 4096, 16, width, dtype=dtype, device=device, requires_grad=True)
        for _ in range(3)
    )
    every = torch.ones(1, 32, 32, dtype=torch.bool)
    with recording(target) as found:
        if layout:
            o = block_sparse(q, k, v, every, block=128, causal=True)
        else:
            o = longformer(q, k, v, window, causal=True)
        torch.autograd.grad(o, (q, k, v), torch.empty_like(o))
    return tuple(one for one in found if not only or one.name in only)
