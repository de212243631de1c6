"""Block-sparse backward: dQ along the lists of rows, dK and dV along those of columns.

Each tile of a result has one program that alone writes it, so the bits are the same in every run.
"""

import triton
import triton.language as tl

from weft.kernels.attention import (
    LN2,
    LOG2E,
    head,
    load_rows,
    load_tile,
    padded,
    program,
    store_tile,
)
from weft.kernels.sparse.rule import bounds, counts, following


@triton.jit
def dq_kernel(
    q, k, v, layout, window, listed, do, lse, delta, dq, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """One tile of dQ: dS K, with dS = P * (dO V^T - delta) of the squares in its row."""
    i_q, i_h, i_b = program(tl.cdiv(T, TILE_Q), H, CAUSAL)
    first = (i_q * TILE_Q).to(tl.int32)
    k, v = head(k, i_b, i_h // R), head(v, i_b, i_h // R)
    o_row = tl.arange(0, TILE_Q)
    b_q = load_tile(head(q, i_b, i_h), first, o_row, T, K, True)
    b_do = load_tile(head(do, i_b, i_h), first, o_row, T, V, True)
    # Behind the last row P has to be 0: exp(0 - inf).
    b_lse = load_rows(head(lse, i_b, i_h), first, o_row, T, float("inf")) * LOG2E
    b_delta = load_rows(head(delta, i_b, i_h), first, o_row, T, 0.0)
    b_dq = tl.zeros([TILE_Q, padded(K)], tl.float32)
    full, partial, end = bounds(listed, i_b, i_h, first // UNIT)
    if partial > full:
        b_dq = dq_inner(
            b_q, b_do, b_lse, b_delta, b_dq, k, v, layout, window, listed.tiles, i_b, i_h, first,
            full, partial, T, S, scale, K, V, CAUSAL, TILE_K, UNIT, False,
        )  # fmt: skip
    if end > partial:
        b_dq = dq_inner(
            b_q, b_do, b_lse, b_delta, b_dq, k, v, layout, window, listed.tiles, i_b, i_h, first,
            partial, end, T, S, scale, K, V, CAUSAL, EDGE, UNIT, True,
        )  # fmt: skip
    store_tile(head(dq, i_b, i_h), i_q * TILE_Q, b_dq * (scale * LN2), o_row, T, K)


@triton.jit
def dq_inner(
    b_q, b_do, b_lse, b_delta, b_dq, k, v, layout, window, tiles, i_b, i_h, first, begin, end,
    T, S, scale, K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, TILE_K: tl.constexpr,
    UNIT: tl.constexpr, PARTIAL: tl.constexpr,
):  # fmt: skip
    """Take in the squares from `begin` to `end` of the list, TILE_K keys at a time."""
    o_k = tl.arange(0, TILE_K)
    STEPS: tl.constexpr = UNIT // TILE_K
    square = following(tiles, begin, end)
    for i in range(begin * STEPS, end * STEPS):
        start = square * UNIT + i % STEPS * TILE_K
        square = following(tiles, (i + 1) // STEPS, end)
        b_k = load_tile(k, start, o_k, S, K, PARTIAL)
        b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * scale - b_lse[:, None]
        if PARTIAL:
            o_q = first + tl.arange(0, b_q.shape[0])[:, None]
            m_counts = counts(layout, window, i_b, i_h, o_q, start + o_k[None, :], T, S, CAUSAL)
            b_s = tl.where(m_counts, b_s, float("-inf"))
        b_v = load_tile(v, start, o_k, S, V, PARTIAL)
        b_dp = tl.dot(b_do, tl.trans(b_v), input_precision="ieee")
        b_ds = tl.exp2(b_s) * (b_dp - b_delta[:, None])
        b_dq = tl.dot(b_ds.to(b_k.dtype), b_k, b_dq, input_precision="ieee")
    return b_dq


@triton.jit
def dkdv_kernel(
    q, k, v, layout, window, listed, do, lse, delta, dk, dv, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """One tile of dK and of dV, from the squares in its column of each of R query heads."""
    G = H // R
    i_k, i_g, i_b = program(tl.cdiv(S, TILE_K), G, False)
    first = (i_k * TILE_K).to(tl.int32)
    o_k = tl.arange(0, TILE_K)
    b_k = load_tile(head(k, i_b, i_g), first, o_k, S, K, True)
    b_v = load_tile(head(v, i_b, i_g), first, o_k, S, V, True)
    b_dk = tl.zeros([TILE_K, padded(K)], tl.float32)
    b_dv = tl.zeros([TILE_K, padded(V)], tl.float32)
    for i_r in range(R):
        i_h = i_g * R + i_r
        full, partial, end = bounds(listed, i_b, i_h, first // UNIT)
        rows = head(q, i_b, i_h), head(do, i_b, i_h), head(lse, i_b, i_h), head(delta, i_b, i_h)
        if partial > full:
            b_dk, b_dv = dkdv_inner(
                b_k, b_v, b_dk, b_dv, rows, layout, window, listed.tiles, i_b, i_h, first,
                full, partial, T, S, scale, K, V, CAUSAL, TILE_Q, UNIT, False,
            )  # fmt: skip
        if end > partial:
            b_dk, b_dv = dkdv_inner(
                b_k, b_v, b_dk, b_dv, rows, layout, window, listed.tiles, i_b, i_h, first,
                partial, end, T, S, scale, K, V, CAUSAL, EDGE, UNIT, True,
            )  # fmt: skip
    store_tile(head(dv, i_b, i_g), i_k * TILE_K, b_dv, o_k, S, V)
    store_tile(head(dk, i_b, i_g), i_k * TILE_K, b_dk * (scale * LN2), o_k, S, K)


@triton.jit
def dkdv_inner(
    b_k, b_v, b_dk, b_dv, rows, layout, window, tiles, i_b, i_h, first, begin, end, T, S, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, TILE_Q: tl.constexpr,
    UNIT: tl.constexpr, PARTIAL: tl.constexpr,
):  # fmt: skip
    """Take in the squares from `begin` to `end` of the list, TILE_Q queries at a time.

    Tiles of scores lie transposed, [TILE_K, TILE_Q]; `rows` are q, dO, lse and delta of a head.
    """
    q, do, lse, delta = rows
    o_row = tl.arange(0, TILE_Q)
    STEPS: tl.constexpr = UNIT // TILE_Q
    square = following(tiles, begin, end)
    for i in range(begin * STEPS, end * STEPS):
        start = square * UNIT + i % STEPS * TILE_Q
        square = following(tiles, (i + 1) // STEPS, end)
        b_lse = load_rows(lse, start, o_row, T, float("inf")) * LOG2E
        b_q = load_tile(q, start, o_row, T, K, True)
        b_s = tl.dot(b_k, tl.trans(b_q), input_precision="ieee") * scale - b_lse[None, :]
        if PARTIAL:
            o_q, o_k = start + o_row[None, :], first + tl.arange(0, b_k.shape[0])[:, None]
            m_counts = counts(layout, window, i_b, i_h, o_q, o_k, T, S, CAUSAL)
            b_s = tl.where(m_counts, b_s, float("-inf"))
        b_p = tl.exp2(b_s)
        b_do = load_tile(do, start, o_row, T, V, True)
        b_delta = load_rows(delta, start, o_row, T, 0.0)
        b_ds = tl.zeros([b_k.shape[0], TILE_Q], tl.float32) - b_delta[None, :]
        b_ds = b_p * tl.dot(b_v, tl.trans(b_do), b_ds, input_precision="ieee")
        b_dv = tl.dot(b_p.to(b_do.dtype), b_do, b_dv, input_precision="ieee")
        b_dk = tl.dot(b_ds.to(b_q.dtype), b_q, b_dk, input_precision="ieee")
    return b_dk, b_dv
