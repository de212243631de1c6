"""Attention in three passes, with every score in memory: what FlashAttention does without.

Scores are written, read, turned into weights, written, and read again: 4 T S elements move, for
4 T S K operations.
"""

import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention.face import differentiable, launched
from weft.kernels.attention.launch import Problem, view
from weft.kernels.attention.tile import (
    LN2,
    LOG2E,
    head,
    head_mask,
    load_tile,
    padded,
    program,
    row_pointer,
    store_tile,
    visible,
)
from weft.kernels.code import Pass

LONGEST = 2**16  # keys: a program has a whole row in registers; beyond 2**15 some of it spills


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    mask: Tensor | None = None,
    lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """weft.kernels.attention.attention in three passes: slower, and here to be compared.

    Scores and weights are rounded to the type of q, as plain torch would round them. ValueError
    for more than 65,536 keys. The backward pass is the same for all versions.
    """
    return differentiable(forward, q, k, v, causal, scale, mask, lse)


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The three kernels of the forward pass, as they are launched on a chip."""
    return launched(attention, target, **kind)


def forward(x: Problem) -> tuple[Tensor, Tensor]:
    """O [B, T, H, V] and the log-sum-exp of its rows [B, T, H], through scores [B, H, T, S]."""
    B, T, S, H, _, _, V = x.sizes
    if S > LONGEST:
        raise ValueError(f"k has {S} keys, must be at most {LONGEST} for the naive version")
    o_BTHV, lse_BTH = x.q.new_empty(B, T, H, V), x.per_row()
    p_BTHS = x.q.new_empty(B, H, T, S).transpose(1, 2)  # first the scores, then the weights
    tile, ROW = x.tile("naive"), triton.next_power_of_2(S)
    given = {"p": view(p_BTHS), "o": view(o_BTHV), "lse": view(lse_BTH), "ROW": ROW}
    rows = x.programs("q", tile)
    x.launch("scores", scores_kernel, rows * triton.cdiv(S, tile.k), tile, **given)
    wide = tile._replace(warps=max(4, min(16, ROW // 512)), registers=None)
    x.launch("softmax", softmax_kernel, T * H * B, wide, **given)
    x.launch("values", values_kernel, rows, tile, **given)
    return o_BTHV, lse_BTH


@triton.jit
def scores_kernel(
    q, k, p, T, S, H, R, scale, K: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr
):
    """First pass: one tile of scaled scores, Q K^T."""
    tiles = tl.cdiv(S, TILE_K)
    i_tile, i_h, i_b = program(tl.cdiv(T, TILE_Q) * tiles, H, False)
    i_q, i_k = (i_tile // tiles * TILE_Q).to(tl.int32), (i_tile % tiles * TILE_K).to(tl.int32)
    o_q, o_k = tl.arange(0, TILE_Q), tl.arange(0, TILE_K)
    b_q = load_tile(head(q, i_b, i_h), i_q, o_q, T, K, True)
    b_k = load_tile(head(k, i_b, i_h // R), i_k, o_k, S, K, True)
    b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * (scale * LN2)
    p_pair = row_pointer(head(p, i_b, i_h), i_q) + o_q.to(tl.int64)[:, None] * p.t + i_k + o_k
    m_pair = (o_q[:, None] < T - i_q) & (o_k[None, :] < S - i_k)
    tl.store(p_pair, b_s.to(p.p.dtype.element_ty), mask=m_pair)


@triton.jit
def softmax_kernel(p, mask, lse, T, S, H, CAUSAL: tl.constexpr, ROW: tl.constexpr):
    """Second pass: one whole row of scores becomes weights, where it lies."""
    i_q, i_h, i_b = program(T, H, False)
    o_k = tl.arange(0, ROW)
    p_row = row_pointer(head(p, i_b, i_h), i_q) + o_k
    m_visible = visible(head_mask(mask, i_b, i_h), None, i_q, o_k, T, S, CAUSAL)
    b_s = tl.load(p_row, mask=m_visible, other=float("-inf")).to(tl.float32) * LOG2E
    b_max = tl.max(b_s, 0)
    b_base = tl.where(b_max == float("-inf"), 0.0, b_max)
    b_p = tl.exp2(b_s - b_base)
    b_sum = tl.sum(b_p, 0)
    b_sum = tl.where(b_sum == 0.0, 1.0, b_sum)
    tl.store(p_row, (b_p / b_sum).to(p.p.dtype.element_ty), mask=o_k < S)
    tl.store(row_pointer(head(lse, i_b, i_h), i_q), (b_max + tl.log2(b_sum)) * LN2)


@triton.jit
def values_kernel(p, v, o, T, S, H, R, V: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr):
    """Third pass: one tile of O, weights times values."""
    i_q, i_h, i_b = program(tl.cdiv(T, TILE_Q), H, False)
    first = (i_q * TILE_Q).to(tl.int32)
    o_q, o_k = tl.arange(0, TILE_Q), tl.arange(0, TILE_K)
    v = head(v, i_b, i_h // R)
    p_row = row_pointer(head(p, i_b, i_h), first) + o_q.to(tl.int64)[:, None] * p.t
    b_o = tl.zeros([TILE_Q, padded(V)], tl.float32)
    for start in range(0, S, TILE_K):
        m_pair = (o_q[:, None] < T - first) & (o_k[None, :] < S - start)
        b_p = tl.load(p_row + start + o_k[None, :], mask=m_pair, other=0)
        b_v = load_tile(v, start, o_k, S, V, True)
        b_o = tl.dot(b_p, b_v, b_o, input_precision="ieee")
    store_tile(head(o, i_b, i_h), first, b_o, o_q, T, V)
