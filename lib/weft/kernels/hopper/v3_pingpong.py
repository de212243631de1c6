"""FlashAttention on Hopper, version 3: warpgroups take turns at the tensor cores.

Shah et al. 2024, section 3.1. Left alone, the warpgroups of version 2 may all compute
exponentials at once and then all want the tensor cores. Here the products of one warpgroup, the
values of one tile and the scores of the next, are queued together, then the next warpgroup's: the
softmax of each runs while another multiplies.

turns[w] is warpgroup w's turn. A phase ends when the warpgroup before it, w - 1 around the ring,
hands over; waits and hand-overs alternate. Warpgroup 0 begins, so it is one phase ahead.
"""

from weft.kernels.gluon import arrive, gl, jit, register_a, scores, wait, wgmma, wgmma_wait
from weft.kernels.hopper.tile import column, hide, last_seen, pieces, place, softmax, span
from weft.kernels.hopper.v2_specialized import ready, release, write


@jit
def take(turns, turn, W: gl.constexpr):
    """Wait for warpgroup W's turn-th turn."""
    FIRST: gl.constexpr = 1 if W == 0 else 0
    wait(turns.index(W), (turn & 1) ^ FIRST)


@jit
def hand_over(turns, GROUPS: gl.constexpr, W: gl.constexpr):
    """The next one's turn: all warps of this one have queued their products."""
    NEXT: gl.constexpr = (W + 1) % GROUPS
    arrive(turns.index(NEXT))


@jit
def consume(
    out, bufs, bars, sizes,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr,
    GROUPS: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Warpgroup W: the order of version 2, and no product out of turn."""
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
        take(turns, turn, W)
        turn += 1
        for j in range(tiles):
            k = ready(k_bars, k_buf, count, STAGES)
            b_s = wgmma(q, k.permute((1, 0)), b_s, use_acc=False, is_async=True)
            hand_over(turns, GROUPS, W)
            b_s = wgmma_wait(0, deps=(b_s,))
            release(k_bars, count, STAGES)
            if tiles - 1 - j >= full:
                b_s = hide(b_s, o_last, tiles - 1 - j, S_LAYOUT)
            b_p, b_top, b_sum, b_shrink = softmax(b_s, b_top, b_sum, scale)
            b_o = b_o * column(b_shrink, O_LAYOUT)
            b_p = gl.convert_layout(b_p.to(v_buf.dtype), register_a(O_LAYOUT))
            v = ready(v_bars, v_buf, count, STAGES)
            take(turns, turn, W)
            turn += 1
            b_o = wgmma(b_p, v, b_o, is_async=True)
            b_o = wgmma_wait(0, deps=(b_o,))
            release(v_bars, count, STAGES)
            count += 1
        hand_over(turns, GROUPS, W)
        write(out, q_buf, b_o, b_top, b_sum, i_b, i_h, first, T, H, O_LAYOUT, W)
        arrive(q_bars[1].index(W))
