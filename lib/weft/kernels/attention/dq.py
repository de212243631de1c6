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
    head,
    head_mask,
    key_range,
    load_rows,
    load_tile,
    padded,
    program,
    store_tile,
    visible,
    window_range,
)


@triton.jit
def dq_kernel(
    q, k, v, mask, window, do, lse, delta, dq, T, S, H, R, scale, K: tl.constexpr, V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """One tile of dQ.

    1. Load a tile of Q and of dO, and two numbers a row: log-sum-exp and delta.
    2. For each tile of K and V that the rows see: P = exp(Q K^T - lse), dP = dO V^T,
       dS = P * (dP - delta), dQ += dS K. First tiles seen in full, then those at an EDGE.
    3. Scale and store.
    """
    i_q, i_h, i_b = program(tl.cdiv(T, TILE_Q), H, CAUSAL)
    first = (i_q * TILE_Q).to(tl.int32)
    k, v = head(k, i_b, i_h // R), head(v, i_b, i_h // R)
    mask = head_mask(mask, i_b, i_h)
    o_row = tl.arange(0, TILE_Q)
    b_q = load_tile(head(q, i_b, i_h), first, o_row, T, K, True)
    b_do = load_tile(head(do, i_b, i_h), first, o_row, T, V, True)
    # Behind the last row P has to be 0: exp(0 - inf).
    b_lse = load_rows(head(lse, i_b, i_h), first, o_row, T, float("inf")) * LOG2E
    b_delta = load_rows(head(delta, i_b, i_h), first, o_row, T, 0.0)
    b_dq = tl.zeros([TILE_Q, padded(K)], tl.float32)
    full, end = key_range(first, T, S, mask is not None, CAUSAL, TILE_Q, TILE_K)
    left = 0
    if window is not None:  # as in the forward pass
        begin, left, full = window_range(first, full, T, S, window, TILE_Q, TILE_K)
        if left > begin:
            b_dq = dq_inner(
                b_q, b_do, b_lse, b_delta, b_dq, k, v, mask, window, first, begin, left, T, S,
                scale, K, V, CAUSAL, EDGE, True,
            )  # fmt: skip
    if full > left:
        b_dq = dq_inner(
            b_q, b_do, b_lse, b_delta, b_dq, k, v, mask, window, first, left, full, T, S, scale,
            K, V, CAUSAL, TILE_K, False,
        )  # fmt: skip
    if end > full:
        b_dq = dq_inner(
            b_q, b_do, b_lse, b_delta, b_dq, k, v, mask, window, first, full, end, T, S, scale,
            K, V, CAUSAL, EDGE, True,
        )  # fmt: skip
    store_tile(head(dq, i_b, i_h), i_q * TILE_Q, b_dq * (scale * LN2), o_row, T, K)


@triton.jit
def dq_inner(
    b_q, b_do, b_lse, b_delta, b_dq, k, v, mask, window, first, begin, end, T, S, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, TILE_K: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    """Take in the keys from `begin` to `end`; at an EDGE some pairs are not visible."""
    o_k = tl.arange(0, TILE_K)
    for start in range(begin, end, TILE_K):
        b_k = load_tile(k, start, o_k, S, K, EDGE)
        b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * scale - b_lse[:, None]
        if EDGE:
            o_q = first + tl.arange(0, b_q.shape[0])
            m_visible = visible(mask, window, o_q[:, None], start + o_k[None, :], T, S, CAUSAL)
            b_s = tl.where(m_visible, b_s, float("-inf"))
        b_v = load_tile(v, start, o_k, S, V, EDGE)
        b_dp = tl.dot(b_do, tl.trans(b_v), input_precision="ieee")
        b_ds = tl.exp2(b_s) * (b_dp - b_delta[:, None])
        b_dq = tl.dot(b_ds.to(b_k.dtype), b_k, b_dq, input_precision="ieee")
    return b_dq
