"""Attention in three passes, with every score in memory: what FlashAttention does without.

Scores are written, read, turned into weights, written, and read again: 4 T S elements move, for
4 T S K operations.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention.call import call, compiled
from weft.kernels.attention.launch import Problem
from weft.kernels.attention.tile import LN2, LOG2E, far, load_tile, place, seen, store_tile
from weft.kernels.code import Pass

LONGEST = 2**16  # keys: a program has a whole row of scores in its registers


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

    Scores and weights are rounded to the type of q, as plain torch would round them. It gives the
    same, but that a value which is NaN or infinite reaches every row. ValueError for more than
    65,536 keys. The backward pass is the same for all versions.
    """
    return call(forward, q, k, v, causal, scale, mask, lse)


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The three kernels of the forward pass, as they are launched on a chip."""
    return compiled(forward, target, **kind)


def forward(x: Problem) -> tuple[Tensor, Tensor]:
    """O [B, T, H, V] and the log-sum-exp of its rows [B, H, T], through scores [B, H, T, S]."""
    B, T, S, H, _, _, V = x.sizes
    if S > LONGEST:
        raise ValueError(f"k has {S} keys, must be at most {LONGEST} for the naive version")
    o = x.q.new_empty(B, T, H, V)
    lse = x.q.new_empty(B, H, T, dtype=torch.float32)
    s = x.q.new_empty(B, H, T, S)
    tile, row = x.tile("naive"), triton.next_power_of_2(S)
    rows, cols = triton.cdiv(T, tile.q), triton.cdiv(S, tile.k)
    given = x.inputs() | {"p_s": s, "p_o": o, "p_lse": lse}
    x.launch("scores", scores, rows * cols * H * B, tile, **given)
    wide = tile._replace(warps=max(4, min(16, row // 512)), registers=None)
    x.launch("softmax", softmax, T * H * B, wide, **given, ROW=row)
    x.launch("values", values, rows * H * B, tile, **given)
    return o, lse


@triton.jit
def scores(
    p_q, p_k, p_s, stride_qb, stride_qt, stride_qh, stride_kb, stride_ks, stride_kg,
    T, S, H, R, scale, K: tl.constexpr, WIDE_K: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """First pass: one tile of scaled scores, q k^T."""
    cols = tl.cdiv(S, TILE_K)
    i = tl.program_id(0)
    i_k = (i % cols).to(tl.int64)
    i_q, i_h, i_b = place(i // cols, tl.cdiv(T, TILE_Q), H, False)
    o_q, o_k = tl.arange(0, TILE_Q), tl.arange(0, TILE_K)
    p_q += i_b * stride_qb + i_h * stride_qh + i_q * TILE_Q * stride_qt
    p_k += i_b * stride_kb + i_h // R * stride_kg + i_k * TILE_K * stride_ks
    b_q = load_tile(p_q, o_q, stride_qt, T - i_q * TILE_Q, K, WIDE_K, True)
    b_k = load_tile(p_k, o_k, stride_ks, S - i_k * TILE_K, K, WIDE_K, True)
    b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * (scale * LN2)
    o_q, o_k = (i_q * TILE_Q + o_q)[:, None], (i_k * TILE_K + o_k)[None, :]
    p_s += ((i_b * H + i_h) * T + o_q) * S + o_k
    tl.store(p_s, b_s.to(p_s.dtype.element_ty), mask=(o_q < T) & (o_k < S))


@triton.jit
def softmax(
    p_s, p_mask, p_lse, stride_mb, stride_mh, stride_mt, stride_ms, T, S, H,
    CAUSAL: tl.constexpr, ROW: tl.constexpr,
):  # fmt: skip
    """Second pass: one whole row of scores becomes weights, where it lies."""
    i_q, i_h, i_b = place(tl.program_id(0), T, H, False)
    if p_mask is not None:
        p_mask += i_b * stride_mb + i_h * stride_mh
    o_k = tl.arange(0, ROW)
    p_s += ((i_b * H + i_h) * T + i_q) * S + o_k
    m_seen = seen(p_mask, stride_mt, stride_ms, i_q, o_k, T, S, CAUSAL)
    b_s = tl.load(p_s, mask=m_seen, other=float("-inf")).to(tl.float32) * LOG2E
    b_top = tl.max(b_s, 0)
    b_ref = tl.where(b_top == float("-inf"), 0.0, b_top)
    b_p = tl.exp2(b_s - b_ref)
    b_sum = tl.sum(b_p, 0)
    b_sum = tl.where(b_sum == 0.0, 1.0, b_sum)
    tl.store(p_s, (b_p / b_sum).to(p_s.dtype.element_ty), mask=o_k < S)
    tl.store(p_lse + (i_b * H + i_h) * T + i_q, (b_top + tl.log2(b_sum)) * LN2)


@triton.jit
def values(
    p_s, p_v, p_o, stride_vb, stride_vs, stride_vg, T, S, H, R,
    V: tl.constexpr, WIDE_V: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Third pass: one tile of O, weights times values."""
    i_q, i_h, i_b = place(tl.program_id(0), tl.cdiv(T, TILE_Q), H, False)
    o_q, o_k = tl.arange(0, TILE_Q), tl.arange(0, TILE_K)
    p_v += i_b * stride_vb + i_h // R * stride_vg
    p_s += ((i_b * H + i_h) * T + i_q * TILE_Q) * S
    left = T - i_q * TILE_Q
    b_o = tl.zeros([TILE_Q, WIDE_V], tl.float32)
    for start in range(0, S, TILE_K):
        m_p = (o_q[:, None] < left) & (o_k[None, :] < S - start)
        b_p = tl.load(p_s + o_q[:, None].to(tl.int64) * S + start + o_k[None, :], mask=m_p, other=0)
        p_vt = p_v + far(start, stride_vs)
        b_v = load_tile(p_vt, o_k, stride_vs, S - start, V, WIDE_V, True)
        b_o = tl.dot(b_p, b_v, b_o, input_precision="ieee")
    p_o += (i_b * T * H + i_q * TILE_Q * H + i_h) * V
    store_tile(p_o, b_o, o_q, H * V, left, V, WIDE_V)
