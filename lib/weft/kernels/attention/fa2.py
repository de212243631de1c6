"""FlashAttention-2 forward: a row of tiles stays on the chip, the keys and values stream past.

Dao 2023, algorithm 1 and section 3.2. One program per tile of queries, head and batch: they share
nothing, so a long sequence alone fills the chip. Within a program each warp has its own rows of
the tile and all the keys, so a row's maximum, sum and output never leave their warp.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention.launch import Problem
from weft.kernels.attention.odd import rows_odd
from weft.kernels.attention.tile import LN2, far, flaw, keys, load_tile, place, seen, store_tile


def forward(x: Problem) -> tuple[Tensor, Tensor]:
    """O [B, T, H, V] and the log-sum-exp of its rows [B, H, T], by one program per tile of O."""
    B, T, _, H, _, _, V = x.sizes
    o = x.q.new_empty(B, T, H, V)
    lse = x.q.new_empty(B, H, T, dtype=torch.float32)
    x.launch_mended("forward", rows, rows_odd, "q", p_o=o, p_lse=lse)
    return o, lse


@triton.jit
def rows(
    p_q, p_k, p_v, p_mask, p_o, p_lse, p_flaw,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_ks, stride_kg,
    stride_vb, stride_vs, stride_vg, stride_mb, stride_mh, stride_mt, stride_ms,
    T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """One tile of O and its log-sum-exp. `scale` has log2(e) folded in; R heads share a k, v."""
    i_q, i_h, i_b = place(tl.program_id(0), tl.cdiv(T, TILE_Q), H, CAUSAL)
    p_q += i_b * stride_qb + i_h * stride_qh + i_q * TILE_Q * stride_qt
    p_k += i_b * stride_kb + i_h // R * stride_kg
    p_v += i_b * stride_vb + i_h // R * stride_vg
    if p_mask is not None:
        p_mask += i_b * stride_mb + i_h * stride_mh
    o_row = tl.arange(0, TILE_Q)
    left = (T - i_q * TILE_Q).to(tl.int32)
    b_q = load_tile(p_q, o_row, stride_qt, left, K, WIDE_K, True)
    first = (i_q * TILE_Q).to(tl.int32)
    b_o = tl.zeros([TILE_Q, WIDE_V], tl.float32)
    b_top = tl.full([TILE_Q], float("-inf"), tl.float32)
    b_sum = tl.zeros([TILE_Q], tl.float32)
    plain, end = keys(first, T, S, p_mask is None, CAUSAL, TILE_Q, TILE_K)
    if plain > 0:  # a loop that may be empty makes ptxas serialise every wgmma
        b_o, b_top, b_sum = look(
            b_q, b_o, b_top, b_sum, p_k, p_v, p_mask, stride_ks, stride_vs, stride_mt, stride_ms,
            first, 0, plain, T, S, scale, K, V, WIDE_K, WIDE_V, CAUSAL, TILE_K, False,
        )  # fmt: skip
    if end > plain:
        b_o, b_top, b_sum = look(
            b_q, b_o, b_top, b_sum, p_k, p_v, p_mask, stride_ks, stride_vs, stride_mt, stride_ms,
            first, plain, end, T, S, scale, K, V, WIDE_K, WIDE_V, CAUSAL, EDGE, True,
        )  # fmt: skip
    b_sum = tl.where(b_sum == 0.0, 1.0, b_sum)  # a row that sees nothing: 0, and log 1 - inf
    p_o += (i_b * T * H + i_q * TILE_Q * H + i_h) * V
    store_tile(p_o, b_o / b_sum[:, None], o_row, H * V, left, V, WIDE_V)
    o_lse = (i_b * H + i_h) * T + i_q * TILE_Q + o_row
    tl.store(p_lse + o_lse, (b_top + tl.log2(b_sum)) * LN2, mask=o_row < left)
    if p_flaw is not None:
        tl.store(p_flaw + o_lse, flaw(b_o), mask=o_row < left)


@triton.jit
def look(
    b_q, b_o, b_top, b_sum, p_k, p_v, p_mask,
    stride_ks, stride_vs, stride_mt, stride_ms, first, begin, end, T, S, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Take in the keys from `begin` to `end`; at an EDGE some pairs are not seen.

    b_o and b_sum are relative to exp2(b_top), the largest score so far: when that
    grows, both shrink. Nothing is divided until the end. Scores are in units of
    log 2.
    """
    o_k = tl.arange(0, TILE_K)
    for start in range(begin, end, TILE_K):
        p_kt, p_vt = p_k + far(start, stride_ks), p_v + far(start, stride_vs)
        b_k = load_tile(p_kt, o_k, stride_ks, S - start, K, WIDE_K, EDGE)
        b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
        if EDGE:
            o_q = first + tl.arange(0, b_q.shape[0])[:, None]
            o_s = start + o_k[None, :]
            m_seen = seen(p_mask, stride_mt, stride_ms, o_q, o_s, T, S, CAUSAL)
            b_s = tl.where(m_seen, b_s, float("-inf"))
        b_new = tl.maximum(b_top, tl.max(b_s, 1) * scale)
        b_ref = tl.where(b_new == float("-inf"), 0.0, b_new)  # -inf - -inf is NaN
        b_p = tl.exp2(b_s * scale - b_ref[:, None])
        b_shrink = tl.exp2(b_top - b_ref)
        b_sum = b_sum * b_shrink + tl.sum(b_p, 1)
        b_o = b_o * b_shrink[:, None]
        b_v = load_tile(p_vt, o_k, stride_vs, S - start, V, WIDE_V, EDGE)
        b_o = tl.dot(b_p.to(b_v.dtype), b_v, b_o, input_precision="ieee")
        b_top = b_new
    return b_o, b_top, b_sum
