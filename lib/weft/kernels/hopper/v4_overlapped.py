"""FlashAttention on Hopper, version 4: softmax under the warpgroup's own products as well.

Shah et al. 2024, section 3.2, algorithm 2. The scores of the next tile do not need the output of
the last, so both products are issued at once: when the scores are there, their exponentials are
computed while the values of the tile before are still being multiplied. It costs registers for a
second tile of scores, which the loader of version 2 has given.

Order within a warpgroup, for tiles 0, 1, 2 … from the right:

    scores 0 | softmax 0 | scores 1, values 0 | softmax 1 | scores 2, values 1 | … | values n - 1

The barriers are those of version 3; a turn is now one pair of products, issued back to back.
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
from weft.kernels.hopper.ring import ready, release, tile, wait_full
from weft.kernels.hopper.tile import as_column, mask, softmax, work_count
from weft.kernels.hopper.v2_specialized import begin_item, write
from weft.kernels.hopper.v3_pingpong import pass_turn, wait_turn


@jit
def consumer(out, shared, lengths, CAUSAL: gl.constexpr, W: gl.constexpr):
    """Warpgroup W: the first tile's scores, pairs of products, the last tile's values.

    Tiles that are masked come first, so there are two loops: one that masks, one that does not.
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
        b_k = ready(k, count)
        b_s = wgmma(tile(q, W), b_k.permute((1, 0)), b_s, use_acc=False, is_async=True)
        b_s = wgmma_wait(0, deps=(b_s,))
        release(k, count)
        b_s = mask(b_s, o_last, item.tiles - 1, S_LAYOUT)
        b_p, b_max, b_sum, b_shrink = softmax(b_s, b_max, b_sum, out.scale)
        b_p = pack(b_p, v.buf.dtype)
        wait_full(k, count + 1, item.tiles > 1)
        for i_k in range(item.tiles - 2, item.full - 1, -1):
            b_o, b_p, b_max, b_sum = pair(
                b_o, b_p, b_max, b_sum, o_last, shared, count, turn, i_k, out.scale, True, W
            )
            count += 1
            turn += 1
        for i_k in range(gl.minimum(item.tiles - 1, item.full) - 1, -1, -1):
            b_o, b_p, b_max, b_sum = pair(
                b_o, b_p, b_max, b_sum, o_last, shared, count, turn, i_k, out.scale, False, W
            )
            count += 1
            turn += 1
        b_p = gl.convert_layout(unpack(b_p, v.buf.dtype, S_LAYOUT), register_a(O_LAYOUT))
        b_v = ready(v, count)
        b_o = wgmma(b_p, b_v, b_o, is_async=True)
        b_o = wgmma_wait(0, deps=(b_o,))
        release(v, count)
        count += 1
        write(out, q.buf, b_o, b_max, b_sum, item, lengths, O_LAYOUT, W)
        arrive(q.empty.index(W))


@jit
def pair(
    b_o, b_p, b_max, b_sum, o_last, shared, count, turn, i_k, scale,
    MASKED: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Issue scores of tile count + 1 and values of tile count; softmax; rescale.

    b_p are the probabilities of tile count, packed two to a register. Tile count +
    1 of the keys has been waited for.
    """
    q, k, v, turns = shared
    ROWS: gl.constexpr = q.buf.shape[2]
    TILE_K: gl.constexpr = k.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K)
    O_LAYOUT: gl.constexpr = scores(4, q.buf.shape[4])
    b_a = unpack(b_p, v.buf.dtype, S_LAYOUT)
    b_a = gl.convert_layout(b_a, register_a(O_LAYOUT))
    b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
    b_k = tile(k, count + 1)
    wait_turn(turns, turn, W)
    b_s = wgmma(tile(q, W), b_k.permute((1, 0)), b_s, use_acc=False, is_async=True)
    b_v = ready(v, count)
    b_o = wgmma(b_a, b_v, b_o, is_async=True)
    pass_turn(turns, W)
    b_s = wgmma_wait(1, deps=(b_s,))  # one is left: values, during the softmax
    release(k, count + 1)
    if MASKED:
        b_s = mask(b_s, o_last, i_k, S_LAYOUT)
    b_p, b_max, b_sum, b_shrink = softmax(b_s, b_max, b_sum, scale)
    # This wait could stand at the head of the next turn. Here it is a branch, and
    # the assembler, which moves a wait for products up to where nothing needs it
    # later, does not cross one.
    wait_full(k, count + 2, i_k > 0)
    # b_a too: the product reads it from registers until it is done.
    b_o, b_a = wgmma_wait(0, deps=(b_o, b_a))
    release(v, count)
    b_o = b_o * as_column(b_shrink, O_LAYOUT)
    return b_o, pack(b_p, v.buf.dtype), b_max, b_sum
