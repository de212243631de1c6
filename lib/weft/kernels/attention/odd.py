"""What NaN or an infinity has spoilt, done over: the tiles of a result that are not finite.

What is not seen weighs 0, but 0 * NaN and 0 * inf are NaN. So where there are pairs that are not
seen, each pass leaves word of every row of its result: 0 if all of it is finite, else NaN. Then
comes the pass of the same name here. Its programs end at once, but for those whose tile has a flaw:
they compute it again, three products for one, and keep out of each what is not seen. A score of
-inf sees nothing of a value either, as in weft.ref. Passes of their own, because in those that
must be fast their registers are needed.
"""

import triton
import triton.language as tl

from weft.kernels.attention.tile import LN2, LOG2E, far, keys, load_tile, place, seen, store_tile


@triton.jit
def rows_odd(
    p_q, p_k, p_v, p_mask, p_o, p_lse, p_flaw,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_ks, stride_kg,
    stride_vb, stride_vs, stride_vg, stride_mb, stride_mh, stride_mt, stride_ms,
    T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Tiles of O, from the log-sum-exp of their rows: that is right already."""
    i_q, i_h, i_b = place(tl.program_id(0), tl.cdiv(T, TILE_Q), H, False)
    o_row, o_k = tl.arange(0, TILE_Q), tl.arange(0, TILE_K)
    first = (i_q * TILE_Q).to(tl.int32)
    if sound(p_flaw + (i_b * H + i_h) * T + i_q * TILE_Q, o_row, T - first):
        return
    p_q += i_b * stride_qb + i_h * stride_qh + i_q * TILE_Q * stride_qt
    p_k += i_b * stride_kb + i_h // R * stride_kg
    p_v += i_b * stride_vb + i_h // R * stride_vg
    if p_mask is not None:
        p_mask += i_b * stride_mb + i_h * stride_mh
    p_lse += (i_b * H + i_h) * T + i_q * TILE_Q
    b_lse = load_lse(p_lse + o_row, o_row < T - first)
    b_o = tl.zeros([TILE_Q, WIDE_V], tl.float32)
    end = keys(first, T, S, False, CAUSAL, TILE_Q, TILE_K)[1]
    for start in range(0, end, TILE_K):
        p_kt, p_vt = p_k + far(start, stride_ks), p_v + far(start, stride_vs)
        b_v = load_tile(p_vt, o_k, stride_vs, S - start, V, WIDE_V, True)
        b_s = multiply(p_q, o_row, stride_qt, T - first, p_kt, o_k, stride_ks, S - start, K)
        o_q, o_s = (first + o_row)[:, None], (start + o_k)[None, :]
        m_seen = seen(p_mask, stride_mt, stride_ms, o_q, o_s, T, S, CAUSAL)
        b_s = tl.where(m_seen, b_s * scale, float("-inf"))
        b_o = add_seen(b_o, tl.exp2(b_s - b_lse[:, None]), b_v, b_s != float("-inf"))
    p_o += (i_b * T * H + i_q * TILE_Q * H + i_h) * V
    store_tile(p_o, b_o, o_row, H * V, T - first, V, WIDE_V)


@triton.jit
def dq_odd(
    p_q, p_k, p_v, p_mask, p_do, p_lse, p_delta, p_dq, p_flaw,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_ks, stride_kg,
    stride_vb, stride_vs, stride_vg, stride_mb, stride_mh, stride_mt, stride_ms,
    stride_db, stride_dt, stride_dh, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Tiles of dq."""
    i_q, i_h, i_b = place(tl.program_id(0), tl.cdiv(T, TILE_Q), H, False)
    o_row, o_k = tl.arange(0, TILE_Q), tl.arange(0, TILE_K)
    first = (i_q * TILE_Q).to(tl.int32)
    if sound(p_flaw + (i_b * H + i_h) * T + i_q * TILE_Q, o_row, T - first):
        return
    p_q += i_b * stride_qb + i_h * stride_qh + i_q * TILE_Q * stride_qt
    p_do += i_b * stride_db + i_h * stride_dh + i_q * TILE_Q * stride_dt
    p_k += i_b * stride_kb + i_h // R * stride_kg
    p_v += i_b * stride_vb + i_h // R * stride_vg
    if p_mask is not None:
        p_mask += i_b * stride_mb + i_h * stride_mh
    o_all, m_row = (i_b * H + i_h) * T + i_q * TILE_Q + o_row, o_row < T - first
    b_lse = load_lse(p_lse + o_all, m_row)
    b_delta = tl.load(p_delta + o_all, mask=m_row, other=0.0)
    b_dq = tl.zeros([TILE_Q, WIDE_K], tl.float32)
    end = keys(first, T, S, False, CAUSAL, TILE_Q, TILE_K)[1]
    for start in range(0, end, TILE_K):
        p_kt, p_vt = p_k + far(start, stride_ks), p_v + far(start, stride_vs)
        b_k = load_tile(p_kt, o_k, stride_ks, S - start, K, WIDE_K, True)
        b_s = multiply(p_q, o_row, stride_qt, T - first, p_kt, o_k, stride_ks, S - start, K)
        b_dp = multiply(p_do, o_row, stride_dt, T - first, p_vt, o_k, stride_vs, S - start, V)
        o_q, o_s = (first + o_row)[:, None], (start + o_k)[None, :]
        m_seen = seen(p_mask, stride_mt, stride_ms, o_q, o_s, T, S, CAUSAL)
        b_ds = tl.exp2(b_s * scale - b_lse[:, None]) * (b_dp - b_delta[:, None])
        b_ds = tl.where(m_seen, b_ds, 0.0)
        b_dq = add_seen(b_dq, b_ds, all_nan(b_k), m_seen)
    p_dq += (i_b * T * H + i_q * TILE_Q * H + i_h) * K
    store_tile(p_dq, b_dq * (scale * LN2), o_row, H * K, T - first, K, WIDE_K)


@triton.jit
def dkdv_odd(
    p_q, p_k, p_v, p_mask, p_do, p_lse, p_delta, p_dk, p_dv, p_flaw,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_ks, stride_kg,
    stride_vb, stride_vs, stride_vg, stride_mb, stride_mh, stride_mt, stride_ms,
    stride_db, stride_dt, stride_dh, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Tiles of dk and dv."""
    G = H // R
    i_k, i_g, i_b = place(tl.program_id(0), tl.cdiv(S, TILE_K), G, False)
    o_row, o_k = tl.arange(0, TILE_Q), tl.arange(0, TILE_K)
    first = (i_k * TILE_K).to(tl.int32)
    if sound(p_flaw + (i_b * G + i_g) * S + i_k * TILE_K, o_k, S - first):
        return
    p_k += i_b * stride_kb + i_g * stride_kg + i_k * TILE_K * stride_ks
    p_v += i_b * stride_vb + i_g * stride_vg + i_k * TILE_K * stride_vs
    b_dk = tl.zeros([TILE_K, WIDE_K], tl.float32)
    b_dv = tl.zeros([TILE_K, WIDE_V], tl.float32)
    begin = tl.maximum(first - (S - T), 0) if CAUSAL else 0
    for i_r in range(R):
        i_h, p_maskh = i_g * R + i_r, p_mask
        p_qh = p_q + i_b * stride_qb + i_h * stride_qh
        p_doh = p_do + i_b * stride_db + i_h * stride_dh
        if p_mask is not None:
            p_maskh = p_mask + i_b * stride_mb + i_h * stride_mh
        for start in range(begin, T, TILE_Q):
            o_all, m_row = (i_b * H + i_h) * T + start + o_row, o_row < T - start
            p_qt, p_dot = p_qh + far(start, stride_qt), p_doh + far(start, stride_dt)
            o_q, o_s = (start + o_row)[:, None], (first + o_k)[None, :]
            m_seen = seen(p_maskh, stride_mt, stride_ms, o_q, o_s, T, S, CAUSAL)
            b_s = multiply(p_qt, o_row, stride_qt, T - start, p_k, o_k, stride_ks, S - first, K)
            b_lse = load_lse(p_lse + o_all, m_row)
            b_p = tl.where(m_seen, tl.exp2(b_s * scale - b_lse[:, None]), 0.0)
            b_do = load_tile(p_dot, o_row, stride_dt, T - start, V, WIDE_V, True)
            b_dv = add_seen(b_dv, tl.trans(b_p), b_do, tl.trans(m_seen))
            b_dp = multiply(p_dot, o_row, stride_dt, T - start, p_v, o_k, stride_vs, S - first, V)
            b_delta = tl.load(p_delta + o_all, mask=m_row, other=0.0)
            b_ds = tl.where(m_seen, b_p * (b_dp - b_delta[:, None]), 0.0)
            b_q = load_tile(p_qt, o_row, stride_qt, T - start, K, WIDE_K, True)
            b_dk = add_seen(b_dk, tl.trans(b_ds), all_nan(b_q), tl.trans(m_seen))
    p_dk += (i_b * S * G + i_k * TILE_K * G + i_g) * K
    p_dv += (i_b * S * G + i_k * TILE_K * G + i_g) * V
    store_tile(p_dk, b_dk * (scale * LN2), o_k, G * K, S - first, K, WIDE_K)
    store_tile(p_dv, b_dv, o_k, G * V, S - first, V, WIDE_V)


@triton.jit
def sound(p_flaw, o_row, rows):
    """Whether all rows of a tile are finite."""
    return tl.sum(tl.load(p_flaw + o_row, mask=o_row < rows, other=0.0), 0) == 0.0


@triton.jit
def load_lse(p_lse, m_row):
    """Log-sum-exps of rows, in units of log 2. A row that sees nothing weighs nothing with a 0."""
    b_lse = tl.load(p_lse, mask=m_row, other=0.0) * LOG2E
    return tl.where(b_lse == float("-inf"), 0.0, b_lse)


@triton.jit
def multiply(p_a, o_a, stride_a, rows_a, p_b, o_b, stride_b, rows_b, WIDTH: tl.constexpr):
    """a @ b^T, 32 columns at a time: neither matrix has to stay in registers."""
    b_ab = tl.zeros([o_a.shape[0], o_b.shape[0]], tl.float32)
    for start in range(0, WIDTH, 32):
        o_col = start + tl.arange(0, 32)[None, :]
        m_a = (o_a[:, None] < rows_a) & (o_col < WIDTH)
        m_b = (o_b[:, None] < rows_b) & (o_col < WIDTH)
        b_a = tl.load(p_a + o_a[:, None] * stride_a + o_col, mask=m_a, other=0.0)
        b_b = tl.load(p_b + o_b[:, None] * stride_b + o_col, mask=m_b, other=0.0)
        b_ab = tl.dot(b_a, tl.trans(b_b), b_ab, input_precision="ieee")
    return b_ab


@triton.jit
def add_seen(b_sum, b_w, b_x, m_seen):
    """b_sum + b_w @ b_x, but what is not seen adds nothing, whatever it is.

    Infinities of x keep their sign, since weights do not change it. What is finite, what is inf
    or NaN, and what is -inf or NaN are multiplied apart: the latter only by who sees them.
    """
    b_wide = b_x.to(tl.float32)
    m_up = (b_wide != b_wide) | (b_wide == float("inf"))
    m_down = (b_wide != b_wide) | (b_wide == float("-inf"))
    b_fine = tl.where(m_up | m_down, 0.0, b_wide).to(b_x.dtype)
    b_seen = m_seen.to(b_x.dtype)
    b_sum = tl.dot(b_w.to(b_x.dtype), b_fine, b_sum, input_precision="ieee")
    b_sum += tl.where(tl.dot(b_seen, m_up.to(b_x.dtype)) > 0.0, float("inf"), 0.0)
    b_sum -= tl.where(tl.dot(b_seen, m_down.to(b_x.dtype)) > 0.0, float("inf"), 0.0)
    return b_sum


@triton.jit
def all_nan(b):
    """A tile with NaN for its infinities: a score's gradient is 0 or NaN where it meets one."""
    return tl.where(tl.abs(b.to(tl.float32)) == float("inf"), float("nan"), b)
