"""Attention backward, dq: a tile of queries stays on the chip, the keys stream past once more.

Dao 2023, algorithm 2, adds to dq from the programs that own dk and dv, in whatever order they
come. Here it has programs of its own, which compute each tile of scores a second time: seven
products of tiles instead of five, and the same bits in every run.
"""

import triton
import triton.language as tl

from weft.kernels.attention.tile import (
    LN2,
    LOG2E,
    far,
    flaw,
    keys,
    load_tile,
    place,
    seen,
    store_tile,
)


@triton.jit
def delta(
    p_o, p_do, p_dlse, p_delta,
    stride_db, stride_dt, stride_dh, stride_lb, stride_lt, stride_lh, T, H,
    V: tl.constexpr, WIDE_V: tl.constexpr, TILE_Q: tl.constexpr,
):  # fmt: skip
    """What a row's gradients have in common: the sum of o * do, less the gradient of its lse.

    The gradient of a score is p * (dp - delta): p * dlse is what reaches it through the lse.
    """
    i_q, i_h, i_b = place(tl.program_id(0), tl.cdiv(T, TILE_Q), H, False)
    o_row = tl.arange(0, TILE_Q)
    rows = (T - i_q * TILE_Q).to(tl.int32)
    p_o += (i_b * T * H + i_q * TILE_Q * H + i_h) * V
    p_do += i_b * stride_db + i_q * TILE_Q * stride_dt + i_h * stride_dh
    b_o = load_tile(p_o, o_row, H * V, rows, V, WIDE_V, True)
    b_do = load_tile(p_do, o_row, stride_dt, rows, V, WIDE_V, True)
    b_delta = tl.sum(b_o.to(tl.float32) * b_do.to(tl.float32), 1)
    if p_dlse is not None:
        p_dlse += i_b * stride_lb + i_q * TILE_Q * stride_lt + i_h * stride_lh
        b_delta -= tl.load(p_dlse + o_row * stride_lt, mask=o_row < rows, other=0.0)
    tl.store(p_delta + (i_b * H + i_h) * T + i_q * TILE_Q + o_row, b_delta, mask=o_row < rows)


@triton.jit
def dq(
    p_q, p_k, p_v, p_mask, p_do, p_lse, p_delta, p_dq, p_flaw,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_ks, stride_kg,
    stride_vb, stride_vs, stride_vg, stride_mb, stride_mh, stride_mt, stride_ms,
    stride_db, stride_dt, stride_dh, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """One tile of dq: the keys and values stream past it, as in the forward pass."""
    i_q, i_h, i_b = place(tl.program_id(0), tl.cdiv(T, TILE_Q), H, CAUSAL)
    o_row = tl.arange(0, TILE_Q)
    first = (i_q * TILE_Q).to(tl.int32)
    p_q += i_b * stride_qb + i_h * stride_qh + i_q * TILE_Q * stride_qt
    p_do += i_b * stride_db + i_h * stride_dh + i_q * TILE_Q * stride_dt
    p_k += i_b * stride_kb + i_h // R * stride_kg
    p_v += i_b * stride_vb + i_h // R * stride_vg
    if p_mask is not None:
        p_mask += i_b * stride_mb + i_h * stride_mh
    o_lse = (i_b * H + i_h) * T + i_q * TILE_Q + o_row
    m_row = o_row < T - first
    b_q = load_tile(p_q, o_row, stride_qt, T - first, K, WIDE_K, True)
    b_do = load_tile(p_do, o_row, stride_dt, T - first, V, WIDE_V, True)
    b_lse = tl.load(p_lse + o_lse, mask=m_row, other=float("inf")) * LOG2E
    b_delta = tl.load(p_delta + o_lse, mask=m_row, other=0.0)
    b_dq = tl.zeros([TILE_Q, WIDE_K], tl.float32)
    plain, end = keys(first, T, S, p_mask is None, CAUSAL, TILE_Q, TILE_K)
    if plain > 0:  # as in the forward pass
        b_dq = answer(
            b_q, b_do, b_lse, b_delta, b_dq, p_k, p_v, p_mask, stride_ks, stride_vs,
            stride_mt, stride_ms, first, 0, plain, T, S, scale,
            K, V, WIDE_K, WIDE_V, CAUSAL, TILE_K, False,
        )  # fmt: skip
    if end > plain:
        b_dq = answer(
            b_q, b_do, b_lse, b_delta, b_dq, p_k, p_v, p_mask, stride_ks, stride_vs,
            stride_mt, stride_ms, first, plain, end, T, S, scale,
            K, V, WIDE_K, WIDE_V, CAUSAL, EDGE, True,
        )  # fmt: skip
    p_dq += (i_b * T * H + i_q * TILE_Q * H + i_h) * K
    store_tile(p_dq, b_dq * (scale * LN2), o_row, H * K, T - first, K, WIDE_K)
    if p_flaw is not None:
        tl.store(p_flaw + o_lse, flaw(b_dq), mask=m_row)


@triton.jit
def answer(
    b_q, b_do, b_lse, b_delta, b_dq, p_k, p_v, p_mask, stride_ks, stride_vs,
    stride_mt, stride_ms, first, begin, end, T, S, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Take in the tiles of keys from `begin` to `end`; at an EDGE some pairs are not seen."""
    o_row = tl.arange(0, TILE_K)
    for start in range(begin, end, TILE_K):
        p_kt, p_vt = p_k + far(start, stride_ks), p_v + far(start, stride_vs)
        b_k = load_tile(p_kt, o_row, stride_ks, S - start, K, WIDE_K, EDGE)
        b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * scale - b_lse[:, None]
        if EDGE:
            o_q, o_k = first + tl.arange(0, b_q.shape[0])[:, None], start + o_row[None, :]
            m_seen = seen(p_mask, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL)
            b_s = tl.where(m_seen, b_s, float("-inf"))
        b_v = load_tile(p_vt, o_row, stride_vs, S - start, V, WIDE_V, EDGE)
        b_dp = tl.dot(b_do, tl.trans(b_v), input_precision="ieee")
        b_ds = tl.exp2(b_s) * (b_dp - b_delta[:, None])
        b_dq = tl.dot(b_ds.to(b_k.dtype), b_k, b_dq, input_precision="ieee")
    return b_dq
