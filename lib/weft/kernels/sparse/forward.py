"""Block-sparse forward: FlashAttention-2 along a list of squares instead of along all keys.

One program per tile of queries, head and batch. Of its row of squares it takes the full ones
without a mask, then the partial ones under it; what is in no list is neither read nor computed.
"""

import triton
import triton.language as tl

from weft.kernels.attention import (
    LN2,
    head,
    load_tile,
    padded,
    program,
    store_rows,
    store_tile,
)
from weft.kernels.sparse.rule import bounds, counts, following


@triton.jit
def forward_kernel(
    q, k, v, layout, window, listed, o, lse, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """One tile of O, and the log-sum-exp of its rows; R query heads share one of k and v."""
    i_q, i_h, i_b = program(tl.cdiv(T, TILE_Q), H, CAUSAL)
    first = (i_q * TILE_Q).to(tl.int32)
    k, v = head(k, i_b, i_h // R), head(v, i_b, i_h // R)
    o_row = tl.arange(0, TILE_Q)
    b_q = load_tile(head(q, i_b, i_h), first, o_row, T, K, True)
    b_o = tl.zeros([TILE_Q, padded(V)], tl.float32)
    b_max = tl.full([TILE_Q], float("-inf"), tl.float32)
    b_sum = tl.zeros([TILE_Q], tl.float32)
    full, partial, end = bounds(listed, i_b, i_h, first // UNIT)
    if partial > full:  # a branch, not a loop that may be empty: as in weft.kernels.attention
        b_o, b_max, b_sum = forward_inner(
            b_q, b_o, b_max, b_sum, k, v, layout, window, listed.tiles, i_b, i_h, first,
            full, partial, T, S, scale, K, V, CAUSAL, TILE_K, UNIT, False,
        )  # fmt: skip
    if end > partial:
        b_o, b_max, b_sum = forward_inner(
            b_q, b_o, b_max, b_sum, k, v, layout, window, listed.tiles, i_b, i_h, first,
            partial, end, T, S, scale, K, V, CAUSAL, EDGE, UNIT, True,
        )  # fmt: skip
    b_sum = tl.where(b_sum == 0.0, 1.0, b_sum)  # for rows that see nothing: O = 0
    store_tile(head(o, i_b, i_h), i_q * TILE_Q, b_o / b_sum[:, None], o_row, T, V)
    store_rows(head(lse, i_b, i_h), i_q * TILE_Q, (b_max + tl.log2(b_sum)) * LN2, o_row, T)


@triton.jit
def forward_inner(
    b_q, b_o, b_max, b_sum, k, v, layout, window, tiles, i_b, i_h, first, begin, end, T, S, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, TILE_K: tl.constexpr,
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
        b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
        if PARTIAL:
            o_q = first + tl.arange(0, b_q.shape[0])[:, None]
            m_counts = counts(layout, window, i_b, i_h, o_q, start + o_k[None, :], T, S, CAUSAL)
            b_s = tl.where(m_counts, b_s, float("-inf"))
        b_new = tl.maximum(b_max, tl.max(b_s, 1) * scale)
        b_base = tl.where(b_new == float("-inf"), 0.0, b_new)  # -inf - -inf is NaN
        b_p = tl.exp2(b_s * scale - b_base[:, None])
        b_rescale = tl.exp2(b_max - b_base)
        b_sum = b_sum * b_rescale + tl.sum(b_p, 1)
        b_o = b_o * b_rescale[:, None]
        b_v = load_tile(v, start, o_k, S, V, PARTIAL)
        b_o = tl.dot(b_p.to(b_v.dtype), b_v, b_o, input_precision="ieee")
        b_max = b_new
    return b_o, b_max, b_sum
