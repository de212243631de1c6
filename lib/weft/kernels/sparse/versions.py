"""Block-sparse attention before the lists: a mask on all of it, and a test in front of each square.

Both say what block_sparse says; the backward pass is the same for all. Of n squares in a row of
them m hold a pair that is seen:

    version     squares computed    under a mask    read to know which
    masked      all n               all             a byte for each pair, T S in a head
    skipping    m                   all m           n bytes in a row; no tile is loaded ahead
    lists       m                   partial ones    3 + m numbers in a row

A causal mask leaves out of n what is behind the diagonal. Where squares of a layout are masked, a
byte is read for each of their pairs too, the same one for all of a block: it stays in the cache.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention import (
    LN2,
    Problem,
    attention,
    head,
    load_tile,
    padded,
    problem,
    program,
    store_rows,
    store_tile,
    view,
)
from weft.kernels.code import Pass, recording
from weft.kernels.sparse.face import allowed
from weft.kernels.sparse.forward import forward_inner
from weft.kernels.sparse.launch import Sight, attend, forward_tile
from weft.kernels.sparse.lists import seen_by_layout
from weft.plan.sparse import check_layout


def masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Tensor,
    block: int,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Dense attention under a mask: every score is computed, and most are thrown away."""
    sizes, block = check_layout(q, k, v, layout, block, scale)
    mask = layout.repeat_interleave(block, 1).repeat_interleave(block, 2)
    return attention(q, k, v, causal, scale, mask[:, : sizes.T, : sizes.S])


def skipping(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Tensor,
    block: int,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """A loop over all squares of a row that goes around those of which no pair is seen."""
    check_layout(q, k, v, layout, block, scale)
    x = problem(q, k, v, causal, scale, None)
    return attend(x, allowed(x, layout, block), forward)


def passes(target: str, width: int = 128) -> tuple[Pass, ...]:
    """The kernel that skips, as it is launched on a chip for 16 heads of 4096 tokens."""
    q, k, v = (torch.empty(1, 4096, 16, width, dtype=torch.bfloat16) for _ in range(3))
    with recording(target) as found:
        skipping(q, k, v, torch.ones(1, 32, 32, dtype=torch.bool), 128, causal=True)
    return tuple(found)


def forward(x: Problem, sight: Sight) -> tuple[Tensor, Tensor]:
    """O [B, T, H, V] and the log-sum-exp of its rows [B, T, H]."""
    B, T, S, H, _, _, V = x.sizes
    tile, o_BTHV, lse_BTH = forward_tile(x, sight), x.q.new_empty(B, T, H, V), x.per_row()
    told = sight.layout
    squares = seen_by_layout(T, S, sight.unit, told.p.view(torch.bool), told.block, x.causal)
    touched = squares.touched[0].expand(H, -1, -1).contiguous().view(torch.uint8)
    columns = torch.arange(touched.shape[2], dtype=torch.int32, device=x.q.device)
    given = {"touched": touched, "columns": columns, "N": len(columns), "layout": told}
    given |= {"o": view(o_BTHV), "lse": view(lse_BTH), "UNIT": sight.unit}
    x.launch("skipping", skipping_kernel, x.programs("q", tile), tile, **given)
    return o_BTHV, lse_BTH


@triton.jit
def skipping_kernel(
    q, k, v, layout, touched, columns, o, lse, T, S, H, R, N, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_Q: tl.constexpr, EDGE: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """One tile of O: of the N squares in its row, those are computed that `touched` says."""
    i_q, i_h, i_b = program(tl.cdiv(T, TILE_Q), H, CAUSAL)
    first = (i_q * TILE_Q).to(tl.int32)
    k, v = head(k, i_b, i_h // R), head(v, i_b, i_h // R)
    o_row = tl.arange(0, TILE_Q)
    b_q = load_tile(head(q, i_b, i_h), first, o_row, T, K, True)
    b_o = tl.zeros([TILE_Q, padded(V)], tl.float32)
    b_max = tl.full([TILE_Q], float("-inf"), tl.float32)
    b_sum = tl.zeros([TILE_Q], tl.float32)
    p_row = touched + (i_h * tl.cdiv(T, UNIT) + first // UNIT) * N
    for i in range(N):
        if tl.load(p_row + i) != 0:
            b_o, b_max, b_sum = forward_inner(
                b_q, b_o, b_max, b_sum, k, v, layout, None, columns, i_b, i_h, first,
                i, i + 1, T, S, scale, K, V, CAUSAL, EDGE, UNIT, True,
            )  # fmt: skip
    b_sum = tl.where(b_sum == 0.0, 1.0, b_sum)
    store_tile(head(o, i_b, i_h), i_q * TILE_Q, b_o / b_sum[:, None], o_row, T, V)
    store_rows(head(lse, i_b, i_h), i_q * TILE_Q, (b_max + tl.log2(b_sum)) * LN2, o_row, T)
