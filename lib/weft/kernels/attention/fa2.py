"""FlashAttention-2 forward: a tile of queries stays on the chip, the keys and values stream past.

Dao 2023, algorithm 1 and section 3.2. One program per tile of queries, head and batch: they share
nothing, so a long sequence alone fills the chip. Within a program each warp has its own rows of
the tile and all the keys, so a row's maximum, sum and output never leave their warp.
"""

import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention.launch import Problem, view
from weft.kernels.attention.tile import (
    LN2,
    head,
    head_mask,
    key_range,
    load_tile,
    padded,
    program,
    store_rows,
    store_tile,
    visible,
    window_range,
)


def forward(x: Problem) -> tuple[Tensor, Tensor]:
    """O [B, T, H, V] and the log-sum-exp of its rows [B, T, H], by one program per tile of O."""
    B, T, _, H, _, _, V = x.sizes
    tile, o_BTHV, lse_BTH = x.tile("forward"), x.q.new_empty(B, T, H, V), x.per_row()
    results = {"o": view(o_BTHV), "lse": view(lse_BTH)}
    x.launch("forward", forward_kernel, x.programs("q", tile), tile, **results)
    return o_BTHV, lse_BTH


@triton.jit
def forward_kernel(
    q, k, v, mask, window, o, lse, T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """One tile of O, and the log-sum-exp of its rows.

    1. Load a tile of Q, once. Row by row, O = 0, sum = 0, maximum = -inf.
    2. Stream the tiles of K and V past it that all rows see in full: no mask there.
    3. Then those on the diagonal, under a mask or at the end, EDGE keys at a time.
       With a window, those at its far edge come first, in the same way.
    4. Divide O by the sum, once, and store it with maximum + log sum.

    R query heads share one head of k and v. `scale` has log2(e) folded in.
    """
    i_q, i_h, i_b = program(tl.cdiv(T, TILE_Q), H, CAUSAL)
    first = (i_q * TILE_Q).to(tl.int32)
    k, v = head(k, i_b, i_h // R), head(v, i_b, i_h // R)
    mask = head_mask(mask, i_b, i_h)
    o_row = tl.arange(0, TILE_Q)
    b_q = load_tile(head(q, i_b, i_h), first, o_row, T, K, True)
    b_o = tl.zeros([TILE_Q, padded(V)], tl.float32)
    b_max = tl.full([TILE_Q], float("-inf"), tl.float32)
    b_sum = tl.zeros([TILE_Q], tl.float32)
    full, end = key_range(first, T, S, mask is not None, CAUSAL, TILE_Q, TILE_K)
    left = 0
    # A loop that may be empty makes ptxas wait behind each and every wgmma; one
    # that is guarded by a branch does not.
    if window is not None:
        begin, left, full = window_range(first, full, T, S, window, TILE_Q, TILE_K)
        if left > begin:
            b_o, b_max, b_sum = forward_inner(
                b_q, b_o, b_max, b_sum, k, v, mask, window, first, begin, left, T, S, scale,
                K, V, CAUSAL, EDGE, True,
            )  # fmt: skip
    if full > left:
        b_o, b_max, b_sum = forward_inner(
            b_q, b_o, b_max, b_sum, k, v, mask, window, first, left, full, T, S, scale,
            K, V, CAUSAL, TILE_K, False,
        )  # fmt: skip
    if end > full:
        b_o, b_max, b_sum = forward_inner(
            b_q, b_o, b_max, b_sum, k, v, mask, window, first, full, end, T, S, scale,
            K, V, CAUSAL, EDGE, True,
        )  # fmt: skip
    b_sum = tl.where(b_sum == 0.0, 1.0, b_sum)  # for rows that see nothing: O = 0
    store_tile(head(o, i_b, i_h), i_q * TILE_Q, b_o / b_sum[:, None], o_row, T, V)
    b_lse = (b_max + tl.log2(b_sum)) * LN2  # -inf where a row sees nothing
    store_rows(head(lse, i_b, i_h), i_q * TILE_Q, b_lse, o_row, T)


@triton.jit
def forward_inner(
    b_q, b_o, b_max, b_sum, k, v, mask, window, first, begin, end, T, S, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, TILE_K: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    """Take in the keys from `begin` to `end`; at an EDGE some are not visible.

    b_o and b_sum are relative to exp2(b_max), the largest score so far: when that
    grows, both are rescaled. Nothing is divided until the end. Scores are in units
    of log 2.
    """
    o_k = tl.arange(0, TILE_K)
    for start in range(begin, end, TILE_K):
        b_k = load_tile(k, start, o_k, S, K, EDGE)
        b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
        if EDGE:
            o_row = first + tl.arange(0, b_q.shape[0])[:, None]
            o_col = start + o_k[None, :]
            m_visible = visible(mask, window, o_row, o_col, T, S, CAUSAL)
            b_s = tl.where(m_visible, b_s, float("-inf"))
        # Maximum first, then scale: s * scale - max is one instruction (FFMA).
        b_new = tl.maximum(b_max, tl.max(b_s, 1) * scale)
        b_base = tl.where(b_new == float("-inf"), 0.0, b_new)  # -inf - -inf is NaN
        b_p = tl.exp2(b_s * scale - b_base[:, None])
        b_rescale = tl.exp2(b_max - b_base)
        b_sum = b_sum * b_rescale + tl.sum(b_p, 1)
        b_o = b_o * b_rescale[:, None]
        b_v = load_tile(v, start, o_k, S, V, EDGE)
        b_o = tl.dot(b_p.to(b_v.dtype), b_v, b_o, input_precision="ieee")
        b_max = b_new
    return b_o, b_max, b_sum
