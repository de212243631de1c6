"""Attention backward, dk and dv: a tile of keys stays on the chip, the queries stream past.

Dao 2023, algorithm 2, its inner loop. A program owns one tile of dk and dv and is alone in writing
it: where heads share their keys it goes through all of them, so that nothing is added by two.
"""

import triton
import triton.language as tl

from weft.kernels.attention_fa2 import place
from weft.kernels.attention_tile import LN2, LOG2E, add_rows, far, load_tile, odd, seen, store_tile


@triton.jit
def dkdv(
    p_q, p_k, p_v, p_mask, p_do, p_lse, p_delta, p_dk, p_dv,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_ks, stride_kg,
    stride_vb, stride_vs, stride_vg, stride_mb, stride_mh, stride_mt, stride_ms,
    stride_db, stride_dt, stride_dh, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
    ODD: tl.constexpr,
):  # fmt: skip
    """One tile of dk and of dv: past it stream the queries of all R heads that share it."""
    G = H // R
    i_k, i_g, i_b = place(tl.program_id(0), tl.cdiv(S, TILE_K), G, False)
    o_row = tl.arange(0, TILE_K)
    first = (i_k * TILE_K).to(tl.int32)
    begin, plain = queries(first, T, S, p_mask is None, CAUSAL, TILE_K, EDGE)
    if ODD:
        m_odd = any_odd(p_lse, p_delta, i_b * H + i_g * R, R, begin, plain, T)
        if not m_odd:
            return
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
    if ODD:
        b_dk, b_dv = ask(
            b_k, b_v, b_dk, b_dv, p_q, p_do, p_lse, p_delta, p_mask, stride_qt, stride_qh,
            stride_dt, stride_dh, stride_mh, stride_mt, stride_ms, first, begin, T, T, S, R,
            scale, K, V, WIDE_K, WIDE_V, CAUSAL, 16, True, True,
        )  # fmt: skip
    else:
        b_dk, b_dv = ask(
            b_k, b_v, b_dk, b_dv, p_q, p_do, p_lse, p_delta, p_mask, stride_qt, stride_qh,
            stride_dt, stride_dh, stride_mh, stride_mt, stride_ms, first, begin, plain, T, S, R,
            scale, K, V, WIDE_K, WIDE_V, CAUSAL, EDGE, True, False,
        )  # fmt: skip
        b_dk, b_dv = ask(
            b_k, b_v, b_dk, b_dv, p_q, p_do, p_lse, p_delta, p_mask, stride_qt, stride_qh,
            stride_dt, stride_dh, stride_mh, stride_mt, stride_ms, first, plain, T, T, S, R,
            scale, K, V, WIDE_K, WIDE_V, CAUSAL, TILE_Q, False, False,
        )  # fmt: skip
    p_dk += (i_b * S * G + i_k * TILE_K * G + i_g) * K
    p_dv += (i_b * S * G + i_k * TILE_K * G + i_g) * V
    store_tile(p_dk, b_dk * (scale * LN2), o_row, G * K, S - first, K, WIDE_K)
    store_tile(p_dv, b_dv, o_row, G * V, S - first, V, WIDE_V)


@triton.jit
def any_odd(p_lse, p_delta, i_row, R, begin, end, T):
    """Whether NaN or an infinity may have reached keys that do not see it.

    That is, whether any query of the R heads from row i_row on has one, among those at the edge:
    in q, which made its lse NaN, or in do, which made its delta so.
    """
    o_q = tl.arange(0, 512)
    b_sign = tl.zeros([512], tl.float32)
    for i_r in range(R):
        for start in range(begin, end, 512):
            m_row = (start + o_q < end) & (start + o_q < T)
            o_all = (i_row + i_r) * T + start + o_q
            b_lse = tl.load(p_lse + o_all, mask=m_row, other=0.0)
            b_delta = tl.load(p_delta + o_all, mask=m_row, other=0.0)
            b_sign += b_delta * 0.0 + tl.where(b_lse == float("-inf"), 0.0, b_lse * 0.0)
    return odd(b_sign)


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
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, EDGE: tl.constexpr, ODD: tl.constexpr,
):  # fmt: skip
    """Take in the queries from `begin` to `end` of R heads. Tiles of scores lie transposed."""
    o_row = tl.arange(0, TILE_Q)
    for i_r in range(R):
        p_qh, p_doh = p_q + far(i_r, stride_qh), p_do + far(i_r, stride_dh)
        p_lseh, p_deltah, p_maskh = p_lse + far(i_r, T), p_delta + far(i_r, T), p_mask
        if p_mask is not None:
            p_maskh = p_mask + far(i_r, stride_mh)
        if begin < end:  # a loop that may be empty makes ptxas serialise every wgmma
            for start in range(begin, end, TILE_Q):
                p_qt, p_dot = p_qh + far(start, stride_qt), p_doh + far(start, stride_dt)
                m_row = o_row < T - start
                b_lse = tl.load(p_lseh + start + o_row, mask=m_row, other=float("inf")) * LOG2E
                o_live = o_row
                if EDGE:  # a row that sees nothing may hold anything, and is not read
                    o_live = tl.where(b_lse == float("-inf"), T, o_row)
                b_q = load_tile(p_qt, o_live, stride_qt, T - start, K, WIDE_K, True)
                b_s = tl.dot(b_k, tl.trans(b_q), input_precision="ieee") * scale - b_lse[None, :]
                if EDGE:
                    o_q, o_k = start + o_row[None, :], first + tl.arange(0, b_k.shape[0])[:, None]
                    m_seen = seen(p_maskh, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL)
                    b_s = tl.where(m_seen, b_s, float("-inf"))
                b_p = tl.exp2(b_s)
                b_do = load_tile(p_dot, o_live, stride_dt, T - start, V, WIDE_V, True)
                b_delta = tl.load(p_deltah + start + o_row, mask=m_row, other=0.0)
                b_dp = tl.dot(b_v, tl.trans(b_do), input_precision="ieee")
                b_ds = b_p * (b_dp - b_delta[None, :])
                b_p = b_p.to(b_do.dtype)
                if EDGE:
                    b_ds = tl.where(m_seen, b_ds, 0.0)
                b_ds = b_ds.to(b_q.dtype)
                if ODD:
                    o_q = start + tl.zeros([1, 1], tl.int32)
                    b_dv = add_rows(
                        b_p, b_dv, p_dot, stride_dt, T - start, V, WIDE_V,
                        p_maskh, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL, True,
                    )  # fmt: skip
                    b_dk = add_rows(
                        b_ds, b_dk, p_qt, stride_qt, T - start, K, WIDE_K,
                        p_maskh, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL, True,
                    )  # fmt: skip
                else:
                    b_dv = tl.dot(b_p, b_do, b_dv, input_precision="ieee")
                    b_dk = tl.dot(b_ds, b_q, b_dk, input_precision="ieee")
    return b_dk, b_dv
