"""Attention backward, dk and dv: a tile of keys stays on the chip, the queries stream past.

Dao 2023, algorithm 2, its inner loop. A program owns one tile of dk and dv and is alone in writing
it: where heads share their keys it goes through all of them, so that nothing is added by two.
"""

import triton
import triton.language as tl

from weft.kernels.attention.tile import LN2, LOG2E, far, flaw, load_tile, place, seen, store_tile


@triton.jit
def dkdv(
    p_q, p_k, p_v, p_mask, p_do, p_lse, p_delta, p_dk, p_dv, p_flaw,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_ks, stride_kg,
    stride_vb, stride_vs, stride_vg, stride_mb, stride_mh, stride_mt, stride_ms,
    stride_db, stride_dt, stride_dh, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """One tile of dk and of dv: past it stream the queries of all R heads that share it."""
    G = H // R
    i_k, i_g, i_b = place(tl.program_id(0), tl.cdiv(S, TILE_K), G, False)
    o_row = tl.arange(0, TILE_K)
    first = (i_k * TILE_K).to(tl.int32)
    begin, plain = queries(first, T, S, p_mask is None, CAUSAL, TILE_K, EDGE)
    p_k += i_b * stride_kb + i_g * stride_kg + i_k * TILE_K * stride_ks
    p_v += i_b * stride_vb + i_g * stride_vg + i_k * TILE_K * stride_vs
    b_k = load_tile(p_k, o_row, stride_ks, S - first, K, WIDE_K, True)
    b_v = load_tile(p_v, o_row, stride_vs, S - first, V, WIDE_V, True)
    b_dk = tl.zeros([TILE_K, WIDE_K], tl.float32)
    b_dv = tl.zeros([TILE_K, WIDE_V], tl.float32)
    p_q += i_b * stride_qb + i_g * R * stride_qh
    p_do += i_b * stride_db + i_g * R * stride_dh
    p_lse += (i_b * H + i_g * R) * T
    p_delta += (i_b * H + i_g * R) * T
    if p_mask is not None:
        p_mask += i_b * stride_mb + i_g * R * stride_mh
    b_dk, b_dv = ask(
        b_k, b_v, b_dk, b_dv, p_q, p_do, p_lse, p_delta, p_mask, stride_qt, stride_qh,
        stride_dt, stride_dh, stride_mh, stride_mt, stride_ms, first, begin, plain, T, S, R,
        scale, K, V, WIDE_K, WIDE_V, CAUSAL, EDGE, True,
    )  # fmt: skip
    b_dk, b_dv = ask(
        b_k, b_v, b_dk, b_dv, p_q, p_do, p_lse, p_delta, p_mask, stride_qt, stride_qh,
        stride_dt, stride_dh, stride_mh, stride_mt, stride_ms, first, plain, T, T, S, R,
        scale, K, V, WIDE_K, WIDE_V, CAUSAL, TILE_Q, False,
    )  # fmt: skip
    p_dk += (i_b * S * G + i_k * TILE_K * G + i_g) * K
    p_dv += (i_b * S * G + i_k * TILE_K * G + i_g) * V
    store_tile(p_dk, b_dk * (scale * LN2), o_row, G * K, S - first, K, WIDE_K)
    store_tile(p_dv, b_dv, o_row, G * V, S - first, V, WIDE_V)
    if p_flaw is not None:
        p_flaw += (i_b * G + i_g) * S + i_k * TILE_K
        tl.store(p_flaw + o_row, flaw(b_dk) + flaw(b_dv), mask=o_row < S - first)


@triton.jit
def queries(
    first, T, S, UNMASKED: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Where the queries begin that see any of a tile's keys, and those that see all of them."""
    begin, plain = 0, 0
    if CAUSAL:
        begin = tl.minimum(tl.maximum(first - (S - T), 0), T)
        plain = tl.minimum(tl.maximum(first + TILE_K - 1 - (S - T), 0), T)
    if not UNMASKED:
        plain = T
    return begin, begin + tl.cdiv(plain - begin, EDGE) * EDGE


@triton.jit
def ask(
    b_k, b_v, b_dk, b_dv, p_q, p_do, p_lse, p_delta, p_mask, stride_qt, stride_qh,
    stride_dt, stride_dh, stride_mh, stride_mt, stride_ms, first, begin, end, T, S, R, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Take in the queries from `begin` to `end` of R heads. Tiles of scores lie transposed."""
    o_row = tl.arange(0, TILE_Q)
    for _ in range(R):
        if begin < end:  # a loop that may be empty makes ptxas serialise every wgmma
            for start in range(begin, end, TILE_Q):
                p_qt, p_dot = p_q + far(start, stride_qt), p_do + far(start, stride_dt)
                m_row = o_row < T - start
                b_lse = tl.load(p_lse + start + o_row, mask=m_row, other=float("inf")) * LOG2E
                b_q = load_tile(p_qt, o_row, stride_qt, T - start, K, WIDE_K, True)
                b_s = tl.dot(b_k, tl.trans(b_q), input_precision="ieee") * scale - b_lse[None, :]
                if EDGE:
                    o_q, o_k = start + o_row[None, :], first + tl.arange(0, b_k.shape[0])[:, None]
                    m_seen = seen(p_mask, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL)
                    b_s = tl.where(m_seen, b_s, float("-inf"))
                b_p = tl.exp2(b_s)
                b_do = load_tile(p_dot, o_row, stride_dt, T - start, V, WIDE_V, True)
                b_delta = tl.load(p_delta + start + o_row, mask=m_row, other=0.0)
                b_ds = tl.zeros([b_k.shape[0], TILE_Q], tl.float32) - b_delta[None, :]
                b_ds = b_p * tl.dot(b_v, tl.trans(b_do), b_ds, input_precision="ieee")
                b_dv = tl.dot(b_p.to(b_do.dtype), b_do, b_dv, input_precision="ieee")
                b_dk = tl.dot(b_ds.to(b_q.dtype), b_q, b_dk, input_precision="ieee")
        p_q, p_do, p_lse, p_delta = p_q + stride_qh, p_do + stride_dh, p_lse + T, p_delta + T
        if p_mask is not None:
            p_mask += stride_mh
    return b_dk, b_dv
