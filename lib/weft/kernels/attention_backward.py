"""Attention backward: no score was kept, so each is computed again from its row's log-sum-exp.

Dao 2023, algorithm 2, in three passes: delta, dkdv and dq. The paper adds to dq from many programs
at once, in whatever order they come. Here a program owns what it writes, dk and dv of a tile of
keys or dq of a tile of queries, so two runs give the same bits; the price is seven products of
tiles instead of five.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention_fa2 import keys, place
from weft.kernels.attention_launch import Problem, in_rows, pointer
from weft.kernels.attention_tile import LN2, LOG2E, dot_seen, far, load_tile, odd, seen, store_tile


def backward(
    x: Problem, o: Tensor, lse: Tensor, do: Tensor, dlse: Tensor | None, wanted=(True, True, True)
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of q, k and v that are wanted, from do [B, T, H, V] and dlse [B, T, H]."""
    B, T, S, H, G, K, V = x.sizes
    do, shared, tile = in_rows(do), torch.empty_like(lse), x.tile("dq")
    given = x.inputs() | {"p_o": o, "p_lse": lse, "p_delta": shared, "TILE_Q": tile.q}
    given |= pointer("do", do, "d", "bth") | pointer("dlse", dlse, "l", "bth")
    x.launch("delta", delta, triton.cdiv(T, tile.q) * H * B, tile, **given)
    grad_q = grad_k = grad_v = None
    if wanted[0]:
        grad_q = x.q.new_empty(B, T, H, K)
        given |= {"TILE_K": tile.k, "EDGE": tile.edge}
        x.launch("dq", dq, triton.cdiv(T, tile.q) * H * B, tile, **given, p_dq=grad_q)
    if wanted[1] or wanted[2]:
        grad_k, grad_v, tile = x.k.new_empty(B, S, G, K), x.v.new_empty(B, S, G, V), x.tile("dkdv")
        given |= {"TILE_Q": tile.q, "TILE_K": tile.k, "EDGE": tile.edge}
        made = {"p_dk": grad_k, "p_dv": grad_v}
        x.launch("dkdv", dkdv, triton.cdiv(S, tile.k) * G * B, tile, **given, **made)
    return grad_q, grad_k, grad_v


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


# --- dk and dv ------------------------------------------------------------------------------------


@triton.jit
def dkdv(
    p_q, p_k, p_v, p_mask, p_do, p_lse, p_delta, p_dk, p_dv,
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
    p_k += i_b * stride_kb + i_g * stride_kg + i_k * TILE_K * stride_ks
    p_v += i_b * stride_vb + i_g * stride_vg + i_k * TILE_K * stride_vs
    b_k = load_tile(p_k, o_row, stride_ks, S - first, K, WIDE_K, True)
    b_v = load_tile(p_v, o_row, stride_vs, S - first, V, WIDE_V, True)
    b_dk = tl.zeros([TILE_K, WIDE_K], tl.float32)
    b_dv = tl.zeros([TILE_K, WIDE_V], tl.float32)
    begin, plain = queries(first, T, S, p_mask is None, CAUSAL, TILE_K, EDGE)
    for i_h in range(i_g * R, i_g * R + R):
        p_qh = p_q + i_b * stride_qb + far(i_h, stride_qh)
        p_doh = p_do + i_b * stride_db + far(i_h, stride_dh)
        p_lseh, p_deltah = p_lse + (i_b * H + i_h) * T, p_delta + (i_b * H + i_h) * T
        p_maskh = p_mask
        if p_mask is not None:
            p_maskh = p_mask + i_b * stride_mb + far(i_h, stride_mh)
        b_dk, b_dv = add_queries(
            b_k, b_v, b_dk, b_dv, p_qh, p_doh, p_lseh, p_deltah, p_maskh,
            stride_qt, stride_dt, stride_mt, stride_ms, first, begin, plain, T, S, scale,
            K, V, WIDE_K, WIDE_V, CAUSAL, EDGE, True,
        )  # fmt: skip
        b_dk, b_dv = add_queries(
            b_k, b_v, b_dk, b_dv, p_qh, p_doh, p_lseh, p_deltah, p_maskh,
            stride_qt, stride_dt, stride_mt, stride_ms, first, plain, T, T, S, scale,
            K, V, WIDE_K, WIDE_V, CAUSAL, TILE_Q, False,
        )  # fmt: skip
    p_dk += (i_b * S * G + i_k * TILE_K * G + i_g) * K
    p_dv += (i_b * S * G + i_k * TILE_K * G + i_g) * V
    store_tile(p_dk, b_dk * (scale * LN2), o_row, G * K, S - first, K, WIDE_K)
    store_tile(p_dv, b_dv, o_row, G * V, S - first, V, WIDE_V)


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
def add_queries(
    b_k, b_v, b_dk, b_dv, p_q, p_do, p_lse, p_delta, p_mask,
    stride_qt, stride_dt, stride_mt, stride_ms, first, begin, end, T, S, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Take in the tiles of queries from `begin` to `end`. All tiles of scores lie transposed."""
    o_row = tl.arange(0, TILE_Q)
    for start in range(begin, end, TILE_Q):
        p_qt, p_dot = p_q + far(start, stride_qt), p_do + far(start, stride_dt)
        m_row = o_row < T - start
        b_lse = tl.load(p_lse + start + o_row, mask=m_row, other=float("inf")) * LOG2E
        o_live = o_row
        if EDGE:  # a row that sees nothing may hold anything, and is not read
            o_live = tl.where(b_lse == float("-inf"), T, o_row)
        b_q = load_tile(p_qt, o_live, stride_qt, T - start, K, WIDE_K, True)
        b_s = tl.dot(b_k, tl.trans(b_q), input_precision="ieee") * scale - b_lse[None, :]
        if EDGE:
            o_q, o_k = start + o_row[None, :], first + tl.arange(0, b_k.shape[0])[:, None]
            m_seen = seen(p_mask, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL)
            b_s = tl.where(m_seen, b_s, float("-inf"))
        b_p = tl.exp2(b_s)
        b_do = load_tile(p_dot, o_live, stride_dt, T - start, V, WIDE_V, True)
        b_delta = tl.load(p_delta + start + o_row, mask=m_row, other=0.0)
        b_dp = tl.dot(b_v, tl.trans(b_do), input_precision="ieee")
        b_ds = b_p * (b_dp - b_delta[None, :])
        b_p = b_p.to(b_do.dtype)
        if EDGE:
            b_ds = tl.where(m_seen, b_ds, 0.0).to(b_q.dtype)
            b_sign = tl.where(tl.abs(b_lse) == float("inf"), b_delta, b_delta + b_lse)
            m_odd = odd(b_sign)  # where q is, lse is; where do is, delta is
            o_q = start + tl.zeros([1, 1], tl.int32)
            b_dv = dot_seen(
                b_p, b_do, b_dv, m_odd, p_dot, stride_dt, T - start, V, WIDE_V,
                p_mask, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL, True,
            )  # fmt: skip
            b_dk = dot_seen(
                b_ds, b_q, b_dk, m_odd, p_qt, stride_qt, T - start, K, WIDE_K,
                p_mask, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL, True,
            )  # fmt: skip
        else:
            b_dv = tl.dot(b_p, b_do, b_dv, input_precision="ieee")
            b_dk = tl.dot(b_ds.to(b_q.dtype), b_q, b_dk, input_precision="ieee")
    return b_dk, b_dv


# --- dq -------------------------------------------------------------------------------------------


@triton.jit
def dq(
    p_q, p_k, p_v, p_mask, p_do, p_lse, p_delta, p_dq,
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
    b_dq = add_keys(
        b_q, b_do, b_lse, b_delta, b_dq, p_k, p_v, p_mask, stride_ks, stride_vs,
        stride_mt, stride_ms, first, 0, plain, T, S, scale,
        K, V, WIDE_K, WIDE_V, CAUSAL, TILE_K, False,
    )  # fmt: skip
    b_dq = add_keys(
        b_q, b_do, b_lse, b_delta, b_dq, p_k, p_v, p_mask, stride_ks, stride_vs,
        stride_mt, stride_ms, first, plain, end, T, S, scale,
        K, V, WIDE_K, WIDE_V, CAUSAL, EDGE, True,
    )  # fmt: skip
    p_dq += (i_b * T * H + i_q * TILE_Q * H + i_h) * K
    store_tile(p_dq, b_dq * (scale * LN2), o_row, H * K, T - first, K, WIDE_K)


@triton.jit
def add_keys(
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
        b_qk = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
        b_s = b_qk * scale - b_lse[:, None]
        if EDGE:
            o_q, o_k = first + tl.arange(0, b_q.shape[0])[:, None], start + o_row[None, :]
            m_seen = seen(p_mask, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL)
            b_s = tl.where(m_seen, b_s, float("-inf"))
        b_v = load_tile(p_vt, o_row, stride_vs, S - start, V, WIDE_V, EDGE)
        b_dp = tl.dot(b_do, tl.trans(b_v), input_precision="ieee")
        b_ds = tl.exp2(b_s) * (b_dp - b_delta[:, None])
        if EDGE:
            b_ds = tl.where(m_seen, b_ds, 0.0)
            b_dq = dot_seen(
                b_ds.to(b_k.dtype), b_k, b_dq, odd(b_qk), p_kt, stride_ks, S - start, K, WIDE_K,
                p_mask, stride_mt, stride_ms, o_q, start + tl.zeros([1, 1], tl.int32),
                T, S, CAUSAL, False,
            )  # fmt: skip
        else:
            b_dq = tl.dot(b_ds.to(b_k.dtype), b_k, b_dq, input_precision="ieee")
    return b_dq
