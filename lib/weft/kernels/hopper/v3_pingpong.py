"""FlashAttention on Hopper, version 3: ping-pong, warpgroups take turns at the tensor cores.

Shah et al. 2024, section 3.1. Left alone, the warpgroups of version 2 may all compute
exponentials at once and then all want the tensor cores. Here a warpgroup has a turn, from the
values of one tile to the scores of the next, in which no other issues products: the softmax of
each runs while another multiplies.

turns[w] is warpgroup w's barrier. A phase ends when the warpgroup before it, w - 1 around the
ring, passes the turn on; waiting and passing alternate. Warpgroup 0 begins, so it is one phase
ahead.
"""

from weft.kernels.gluon import arrive, gl, jit, register_a, scores, wait, wgmma, wgmma_wait
from weft.kernels.hopper.ring import ready, release, tile
from weft.kernels.hopper.tile import as_column, mask, softmax, work_count
from weft.kernels.hopper.v2_specialized import begin_item, write


@jit
def wait_turn(turns, turn, W: gl.constexpr):
    """Wait for warpgroup W's turn-th turn."""
    FIRST: gl.constexpr = 1 if W == 0 else 0
    wait(turns.index(W), (turn & 1) ^ FIRST)


@jit
def pass_turn(turns, W: gl.constexpr):
    """The next warpgroup's turn: all warps of this one have issued theirs."""
    NEXT: gl.constexpr = (W + 1) % turns.shape[0]
    arrive(turns.index(NEXT))


@jit
def consumer(out, shared, lengths, CAUSAL: gl.constexpr, W: gl.constexpr):
    """Warpgroup W: the order of version 2, and no product out of turn.

    For each tile of keys from the right:
        S = Q K^T, pass the turn, wait, release K; P, max, sum = softmax(S); O = shrink O;
        wait for the turn, O += P V, wait, release V.
    """
    q, k, v, turns = shared
    ROWS: gl.constexpr = q.buf.shape[2]
    TILE_K: gl.constexpr = k.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K)
    O_LAYOUT: gl.constexpr = scores(4, q.buf.shape[4])
    count = 0
    turn = 0
    for n in range(work_count(lengths.p_work)):
        item, b_o, b_max, b_sum, o_last = begin_item(q, k, lengths, n, CAUSAL, 16, W)
        b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
        wait(q.full.index(W), n & 1)
        wait_turn(turns, turn, W)
        turn += 1
        for j in range(item.tiles):
            b_k = ready(k, count)
            b_s = wgmma(tile(q, W), b_k.permute((1, 0)), b_s, use_acc=False, is_async=True)
            pass_turn(turns, W)
            b_s = wgmma_wait(0, deps=(b_s,))
            release(k, count)
            if item.tiles - 1 - j >= item.full:
                b_s = mask(b_s, o_last, item.tiles - 1 - j, S_LAYOUT)
            b_p, b_max, b_sum, b_shrink = softmax(b_s, b_max, b_sum, out.scale)
            b_o = b_o * as_column(b_shrink, O_LAYOUT)
            b_p = gl.convert_layout(b_p.to(v.buf.dtype), register_a(O_LAYOUT))
            b_v = ready(v, count)
            wait_turn(turns, turn, W)
            turn += 1
            b_o = wgmma(b_p, b_v, b_o, is_async=True)
            b_o = wgmma_wait(0, deps=(b_o,))
            release(v, count)
            count += 1
        pass_turn(turns, W)
        write(out, q.buf, b_o, b_max, b_sum, item, lengths, O_LAYOUT, W)
        arrive(q.empty.index(W))
