"""FlashAttention on Hopper, version 4: softmax under the warpgroup's own products as well.

Shah et al. 2024, section 3.2, algorithm 2. The scores of the next tile do not need the output of
the last, so both products are queued at once: when the scores are there, their exponentials are
computed while the values of the tile before are still being multiplied. It costs registers for a
second tile of scores, which the loader of version 2 has given.

Order within a warpgroup, for tiles 0, 1, 2 … from the right:

    scores 0 | softmax 0 | scores 1, values 0 | softmax 1 | scores 2, values 1 | … | values n - 1

The barriers are those of version 3; a turn is now one pair of products, queued back to back.
A ring must have two stages: tile n + 2 of the keys is waited for before tile n of the values is
released, and the loader cannot get there past tile n + 1 of the values if that has no place.
"""

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    gl,
    jit,
    pack,
    register_a,
    scores,
    unpack,
    wait,
    wgmma,
    wgmma_wait,
)
from weft.kernels.hopper.tile import column, hide, last_seen, pieces, place, softmax, span
from weft.kernels.hopper.v2_specialized import filled, ready, release, tile, write
from weft.kernels.hopper.v3_pingpong import hand_over, take


@jit
def consume(
    out, bufs, bars, sizes,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr,
    GROUPS: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Warpgroup W: the first tile's scores, pairs of products, the last tile's values."""
    scale = out[2]
    q_buf, k_buf, v_buf = bufs
    q_bars, k_bars, v_bars, turns = bars
    T, S, lead, H, R, p_work = sizes
    ROWS: gl.constexpr = q_buf.shape[2]
    K: gl.constexpr = q_buf.shape[4]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K)
    O_LAYOUT: gl.constexpr = scores(4, K)
    ROW: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    q = q_buf.index(W).reshape([ROWS, K])
    count = 0
    turn = 0
    for done in range(pieces(p_work)):
        i_b, i_h, i_q = place(p_work, done, T, H, GROUPS * ROWS)
        first = i_q * GROUPS * ROWS
        tiles, full = span(first, S, lead, CAUSAL, GROUPS * ROWS, TILE_K)
        first += W * ROWS
        o_last = last_seen(first, S, lead, CAUSAL, ROWS, S_LAYOUT)
        b_o = gl.zeros([ROWS, K], gl.float32, O_LAYOUT)
        b_top = gl.full([ROWS], float("-inf"), gl.float32, ROW)
        b_sum = gl.zeros([ROWS], gl.float32, ROW)
        b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
        wait(q_bars[0].index(W), done & 1)
        k = ready(k_bars, k_buf, count, STAGES)
        b_s = wgmma(q, k.permute((1, 0)), b_s, use_acc=False, is_async=True)
        b_s = wgmma_wait(0, deps=(b_s,))
        release(k_bars, count, STAGES)
        b_s = hide(b_s, o_last, tiles - 1, S_LAYOUT)
        b_p, b_top, b_sum, b_shrink = softmax(b_s, b_top, b_sum, scale)
        b_p = pack(b_p, v_buf.dtype)
        filled(k_bars, count + 1, STAGES, tiles > 1)
        for i_k in range(tiles - 2, full - 1, -1):
            b_o, b_p, b_top, b_sum = pair(
                b_o, b_p, b_top, b_sum, o_last, q, k_buf, v_buf, k_bars, v_bars, turns,
                count, turn, i_k, scale, True, STAGES, GROUPS, W,
            )  # fmt: skip
            count += 1
            turn += 1
        for i_k in range(gl.minimum(tiles - 1, full) - 1, -1, -1):
            b_o, b_p, b_top, b_sum = pair(
                b_o, b_p, b_top, b_sum, o_last, q, k_buf, v_buf, k_bars, v_bars, turns,
                count, turn, i_k, scale, False, STAGES, GROUPS, W,
            )  # fmt: skip
            count += 1
            turn += 1
        b_w = gl.convert_layout(unpack(b_p, v_buf.dtype, S_LAYOUT), register_a(O_LAYOUT))
        v = ready(v_bars, v_buf, count, STAGES)
        b_o = wgmma(b_w, v, b_o, is_async=True)
        b_o = wgmma_wait(0, deps=(b_o,))
        release(v_bars, count, STAGES)
        count += 1
        write(out, q_buf, b_o, b_top, b_sum, i_b, i_h, first, T, H, O_LAYOUT, W)
        arrive(q_bars[1].index(W))


@jit
def pair(
    b_o, b_p, b_top, b_sum, o_last, q, k_buf, v_buf, k_bars, v_bars, turns,
    count, turn, i_k, scale,
    EDGE: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Queue the scores of tile count + 1 and the values of tile count; softmax.

    The key tile has been waited for. The wait for the one after it stands where it
    does because it is a branch: the assembler moves a wait for products up to where
    nothing needs it later, across a softmax, but not across a branch.
    """
    TILE_K: gl.constexpr = k_buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K)
    O_LAYOUT: gl.constexpr = scores(4, k_buf.shape[4])
    b_w = unpack(b_p, v_buf.dtype, S_LAYOUT)
    b_w = gl.convert_layout(b_w, register_a(O_LAYOUT))
    b_s = gl.zeros([b_o.shape[0], TILE_K], gl.float32, S_LAYOUT)
    k = tile(k_buf, count + 1, STAGES)
    take(turns, turn, W)
    b_s = wgmma(q, k.permute((1, 0)), b_s, use_acc=False, is_async=True)
    v = ready(v_bars, v_buf, count, STAGES)
    b_o = wgmma(b_w, v, b_o, is_async=True)
    hand_over(turns, GROUPS, W)
    b_s = wgmma_wait(1, deps=(b_s,))
    release(k_bars, count + 1, STAGES)
    if EDGE:
        b_s = hide(b_s, o_last, i_k, S_LAYOUT)
    b_p, b_top, b_sum, b_shrink = softmax(b_s, b_top, b_sum, scale)
    filled(k_bars, count + 2, STAGES, i_k > 0)
    b_o = wgmma_wait(0, deps=(b_o,))
    release(v_bars, count, STAGES)
    b_o = b_o * column(b_shrink, O_LAYOUT)
    return b_o, pack(b_p, v_buf.dtype), b_top, b_sum
