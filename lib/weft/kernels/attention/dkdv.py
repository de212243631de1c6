"""Attention backward, dk and dv: a tile of keys stays on the chip, the queries stream past.

Dao 2023, algorithm 2, its inner loop. A program owns one tile of dk and dv and is alone in writing
it: where heads share their keys it goes through all of them, so that nothing is added by two and
the bits are the same in every run. The price is that there are only B G S / TILE_K programs; a
single kv head (MQA) needs long sequences or large batches to fill a chip.
"""

import triton
import triton.language as tl

from weft.kernels.attention.tile import (
    LN2,
    LOG2E,
    head,
    head_mask,
    load_rows,
    load_tile,
    padded,
    program,
    store_tile,
    visible,
)


@triton.jit
def dkdv_kernel(
    q, k, v, mask, window, do, lse, delta, dk, dv, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """One tile of dK and of dV.

    1. Load a tile of K and of V.
    2. For each of the R query heads that share it, stream the tiles of Q and dO past that see it:
       P = exp(Q K^T - lse), dV += P^T dO, dS = P * (dO V^T - delta), dK += dS^T Q.
       First the tiles at an EDGE, then those whose rows see all of these keys; with a window, at
       last those that these keys begin to leave.
    3. Scale dK, and store both.
    """
    G = H // R
    i_k, i_g, i_b = program(tl.cdiv(S, TILE_K), G, False)
    first = (i_k * TILE_K).to(tl.int32)
    o_k = tl.arange(0, TILE_K)
    b_k = load_tile(head(k, i_b, i_g), first, o_k, S, K, True)
    b_v = load_tile(head(v, i_b, i_g), first, o_k, S, V, True)
    b_dk = tl.zeros([TILE_K, padded(K)], tl.float32)
    b_dv = tl.zeros([TILE_K, padded(V)], tl.float32)
    begin, full = query_range(first, T, S, mask is not None, CAUSAL, TILE_K, EDGE)
    right = T
    if window is not None:
        full, right, end = window_queries(first, begin, full, T, S, window, TILE_Q, TILE_K, EDGE)
    b_dk, b_dv = dkdv_inner(
        b_k, b_v, b_dk, b_dv, q, do, lse, delta, mask, window, i_b, i_g, first, begin, full,
        T, S, R, scale, K, V, CAUSAL, EDGE, True,
    )  # fmt: skip
    b_dk, b_dv = dkdv_inner(
        b_k, b_v, b_dk, b_dv, q, do, lse, delta, mask, window, i_b, i_g, first, full, right,
        T, S, R, scale, K, V, CAUSAL, TILE_Q, False,
    )  # fmt: skip
    if window is not None:
        b_dk, b_dv = dkdv_inner(
            b_k, b_v, b_dk, b_dv, q, do, lse, delta, mask, window, i_b, i_g, first, right, end,
            T, S, R, scale, K, V, CAUSAL, EDGE, True,
        )  # fmt: skip
    store_tile(head(dv, i_b, i_g), i_k * TILE_K, b_dv, o_k, S, V)
    store_tile(head(dk, i_b, i_g), i_k * TILE_K, b_dk * (scale * LN2), o_k, S, K)


@triton.jit
def query_range(
    first, T, S, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """For TILE_K keys from `first` on: (begin, full), the first query that sees any, and all.

    `full` is rounded up to whole tiles of EDGE queries, counted from `begin`.
    """
    begin, full = 0, 0
    if CAUSAL:
        begin = tl.minimum(tl.maximum(first - (S - T), 0), T)
        full = tl.minimum(tl.maximum(first + TILE_K - 1 - (S - T), 0), T)
    if MASKED:
        full = T
    return begin, begin + tl.cdiv(full - begin, EDGE) * EDGE


@triton.jit
def window_queries(
    first, begin, full, T, S, window,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """For TILE_K keys that queries from `begin` on see: (full, right, end).

    From `full` to `right`, in tiles, queries see all of these keys; from `end` on, none. Where the
    window is shorter than the tile no query sees all.
    """
    end = tl.minimum(tl.maximum(first + TILE_K - 1 - (S - T) + window, begin), T)
    full = tl.minimum(full, begin + tl.cdiv(end - begin, EDGE) * EDGE)
    whole = tl.minimum(first - (S - T) + window, T) - full  # queries; below 0 where there are none
    return full, full + tl.maximum(whole, 0) // TILE_Q * TILE_Q, end


@triton.jit
def dkdv_inner(
    b_k, b_v, b_dk, b_dv, q, do, lse, delta, mask, window, i_b, i_g, first, begin, end,
    T, S, R, scale, K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, TILE_Q: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    """Take in the queries from `begin` to `end` of R heads.

    Tiles of scores lie transposed, [TILE_K, TILE_Q]: as left factors of dV and dK they then are in
    registers already.
    """
    o_row = tl.arange(0, TILE_Q)
    for i_r in range(R):
        i_h = i_g * R + i_r
        q_h, do_h = head(q, i_b, i_h), head(do, i_b, i_h)
        lse_h, delta_h = head(lse, i_b, i_h), head(delta, i_b, i_h)
        mask_h = head_mask(mask, i_b, i_h)
        if begin < end:  # not a loop that may be empty: as in the forward pass
            for start in range(begin, end, TILE_Q):
                b_lse = load_rows(lse_h, start, o_row, T, float("inf")) * LOG2E
                b_q = load_tile(q_h, start, o_row, T, K, True)
                b_s = tl.dot(b_k, tl.trans(b_q), input_precision="ieee") * scale - b_lse[None, :]
                if EDGE:
                    o_q, o_k = start + o_row[None, :], first + tl.arange(0, b_k.shape[0])[:, None]
                    m_visible = visible(mask_h, window, o_q, o_k, T, S, CAUSAL)
                    b_s = tl.where(m_visible, b_s, float("-inf"))
                b_p = tl.exp2(b_s)
                b_do = load_tile(do_h, start, o_row, T, V, True)
                # The product starts from -delta instead of 0: that saves a subtraction.
                b_delta = load_rows(delta_h, start, o_row, T, 0.0)
                b_ds = tl.zeros([b_k.shape[0], TILE_Q], tl.float32) - b_delta[None, :]
                b_ds = b_p * tl.dot(b_v, tl.trans(b_do), b_ds, input_precision="ieee")
                b_dv = tl.dot(b_p.to(b_do.dtype), b_do, b_dv, input_precision="ieee")
                b_dk = tl.dot(b_ds.to(b_q.dtype), b_q, b_dk, input_precision="ieee")
    return b_dk, b_dv
