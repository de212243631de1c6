"""The backward pass in one: keys and values stay, queries stream past, and all three sums grow.

FlashAttention-3's order: scores are made once, and five products do what `dq` and
`dkdv` need seven for. dK and dV are summed in registers. A tile's dQ is not the block's
alone, for every block has other keys: the copy engine adds it to numbers of fp32 in memory, in
whatever order the blocks come. So the last bits of dQ may differ from run to run.

A warpgroup has 64 keys and makes dS of them, keys down, which is the A operand of dK. dQ = dS K
sums over keys, so dS also goes through shared memory. At width 128 each warpgroup makes half of
the columns of a tile's dQ, from all keys. At width 64 there is no half for a product to make: each
makes all of it from its own keys, and twice as much is added in memory.

For each tile c of the queries, keys down and queries across:
    dP^T = V dO^T - delta; P^T = exp2(scale S^T + shift); dV += P^T dO; dS^T = P^T dP^T (`dv_ds`);
    dK += dS^T Q; dQ = dS K; S^T of tile c + 1 = K Q^T; dQ goes out (`dk_dq_and_scores`).

The last line issues three products in one go, and dQ leaves while the scores are made. dQ needs the
other warpgroup's dS too, and only this warpgroup's dV lies between its own dS and the wait for
that, so the two keep step. Of a thread's 240 registers, at width 128, 128 hold dK and dV, twice
32 scores and dP, or scores and dQ, and 16 P or dS, packed. dP begins at -delta, not at 0: nobody
has to hold delta when dS is made.
A block has K, V, two stages of Q, dO and dS, and dQ: 192 KiB and a few rows.

Barriers. Tile c of the queries takes stage c % STAGES, as in `v2_specialized`, and dS likewise.

    barrier       arrivals of a phase                      who waits, before
    loaded        the loader; the bytes of K and V         both warpgroups, their first product
    q.full[s]     the loader; the bytes of a tile of Q     both, scores
    q.empty[s]    both, behind dK and dQ of the tile       the loader, the next Q of the stage
    do.full[s]    the loader; the bytes of a tile of dO    both, dP
    do.empty[s]   both, behind dV, once dS is stored       the loader, the next dO of the stage;
                                                           both, dQ of the tile
    dq.full[w]    warpgroup w, once its dQ is stored       sender w, the addition
    dq.empty[w]   sender w, once that has been read        warpgroup w, its next dQ
    made          both, once dK and dV lie where K and V   the loader, which sends them off

A stage's next dS needs no barrier of its own: its Q comes only when both are done with the last.
At the end K may be overwritten once the last tile's q.empty is complete.
"""

from typing import NamedTuple

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    barriers,
    fence,
    gl,
    gluon,
    jit,
    opaque,
    register_a,
    scores,
    tma_add,
    tma_store_wait,
    wait,
    wgmma,
    wgmma_wait,
    workers,
)
from weft.kernels.hopper.dkdv import KeyShared, key_item, mask_keys, producer
from weft.kernels.hopper.ring import (  # fmt: skip
    Ring,
    buffer,
    ready,
    release,
    ring,
    row_ring,
    rows_of,
    stage_of,
    tile,
    wait_released,
)
from weft.kernels.hopper.tile import SIZES, Lengths


class FusedShared(NamedTuple):
    """What the warps of a block share: as in `dkdv`, dS of a stage, and dQ on its way out."""

    keys: KeyShared
    ds_buf: gl.shared_memory_descriptor  # [STAGES, keys, queries]
    dq: Ring  # a stage for each warpgroup


@gluon.constexpr_function
def keys_down():
    """How dS lies in shared memory, keys down: 64 queries are a row of 128 bytes."""
    return gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)


@jit(do_not_specialize=SIZES)
def fused(
    q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dq_desc, dk_desc, dv_desc,
    T, S, H, R, p_work, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dQ, dK and dV, by two warpgroups of 64 keys, a warp that loads and two that send."""
    k_buf = buffer(k_desc, 1)
    v_buf = buffer(v_desc, 1)
    q = row_ring(q_desc, shift_desc, STAGES, 2)
    do = row_ring(do_desc, delta_desc, STAGES, 2)
    keys = KeyShared(k_buf, v_buf, q, do, k_buf, v_buf, barriers(1, 1), barriers(1, 2))
    ds_shape: gl.constexpr = [STAGES, k_desc.block_type.shape[1], q_desc.block_type.shape[1]]
    DS_LAYOUT: gl.constexpr = keys_down()
    ds_buf = gl.allocate_shared_memory(k_desc.dtype, ds_shape, DS_LAYOUT)
    dq = ring(dq_desc, 2, 1)
    shared = FusedShared(keys, ds_buf, dq)
    lengths = Lengths(T, S, H, R, p_work)
    descs = (q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc)
    workers(
        [
            (consumer, (scale, shared, lengths, CAUSAL, 0)),
            (consumer, (scale, shared, lengths, CAUSAL, 1)),
            (producer, (descs, keys, lengths, CAUSAL)),
            (send_dq, (dq_desc, shared, lengths, CAUSAL, 0)),
            (send_dq, (dq_desc, shared, lengths, CAUSAL, 1)),
        ],
        [4, 1, 1, 1],
        [240, 24, 24, 24],
    )


@jit
def own_item(shared, lengths, CAUSAL: gl.constexpr):
    """This block's keys; from the lengths as they are here, not as all roles share them."""
    T, S, H, R, p_work = lengths
    lengths = Lengths(opaque(T), opaque(S), H, R, p_work)
    k_buf = shared.keys.k_buf
    return key_item(lengths, CAUSAL, k_buf.shape[2], shared.keys.q.buf.shape[2])


@jit
def send_dq(dq_desc, shared, lengths, CAUSAL: gl.constexpr, W: gl.constexpr):
    """Have what warpgroup W makes of each tile's dQ added to what is in memory."""
    dq = shared.dq
    R = lengths.R
    item = own_item(shared, lengths, CAUSAL)
    count = 0
    for i_h in range(item.i_g * R, item.i_g * R + R):
        for i_q in range(item.begin, item.end):
            wait(dq.full.index(W), count & 1)
            square = (item.i_b * lengths.H + i_h) * item.end + i_q
            if shared.keys.k_buf.shape[4] == 128:
                square = square * 2 + W
            tma_add(dq_desc, [square * dq.buf.shape[1], 0], dq.buf.index(W))
            tma_store_wait(0)
            arrive(dq.empty.index(W))
            count += 1


@jit
def consumer(scale, shared, lengths, CAUSAL: gl.constexpr, W: gl.constexpr):
    """Warpgroup W: its 64 rows of dK and dV, and its share of each tile's dQ."""
    keys = shared.keys
    KEYS: gl.constexpr = keys.k_buf.shape[2] // 2
    K: gl.constexpr = keys.k_buf.shape[4]
    TILE_Q: gl.constexpr = keys.q.buf.shape[2]
    O_LAYOUT: gl.constexpr = scores(4, K)
    k = keys.k_buf.index(0).reshape([2 * KEYS, K])
    k_own = k.slice(W * KEYS, KEYS)
    v_own = keys.v_buf.index(0).reshape([2 * KEYS, K]).slice(W * KEYS, KEYS)
    item = own_item(shared, lengths, CAUSAL)
    first = item.first + W * KEYS
    start = opaque(lengths.S) - first  # how many keys there are
    if CAUSAL:  # how far they are ahead of a head's first tile
        start = first - (lengths.S - lengths.T) - item.begin * TILE_Q
    stop = start - (item.end - item.begin) * TILE_Q
    ahead = start
    b_dk = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    b_dv = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    wait(keys.loaded.index(0), 0)
    b_s = issue_scores(k_own, keys.q, 0)
    b_dv, b_ds = dv_ds(b_s, b_dv, v_own, shared, 0, start, scale, CAUSAL, W)
    last = lengths.R * (item.end - item.begin) - 1
    for count in range(last):
        if CAUSAL:
            ahead -= TILE_Q
            if ahead == stop:
                ahead = start
        b_dk, b_s = dk_dq_and_scores(b_dk, b_ds, k, k_own, shared, count, W)
        b_dv, b_ds = dv_ds(b_s, b_dv, v_own, shared, count + 1, ahead, scale, CAUSAL, W)
    b_dk, b_dq = issue_dk_dq(b_dk, b_ds, k, shared, last, W)
    wait(shared.dq.empty.index(W), (last & 1) ^ 1)
    b_dk, b_dq = wgmma_wait(0, deps=(b_dk, b_dq))
    store_dq(b_dq, shared.dq, W)
    release(keys.q, last)
    wait_released(keys.q, last)  # K is nobody's any more
    b_dk = b_dk * (scale * 0.6931471805599453)  # scale had log2(e) in it
    k_own.store(b_dk.to(k.dtype))
    v_own.store(b_dv.to(k.dtype))
    fence()
    arrive(keys.made.index(0))


@jit
def mask_tile(b_s, ahead, CAUSAL: gl.constexpr, LAYOUT: gl.constexpr):
    """-inf for scores of keys that a query does not see, or that there are not.

    With a causal mask `ahead` is how far the first key lies ahead of the tile's first query, and
    no query sees a key that does not exist. Without one it is how many keys there are: dQ would
    sum over the others. Little is kept from tile to tile, for registers are dear.
    """
    if CAUSAL:
        if ahead + b_s.shape[0] > 1:
            o_key = opaque(gl.arange(0, b_s.shape[0], gl.SliceLayout(1, LAYOUT)))
            b_s = mask_keys(b_s, ahead + o_key, 0, LAYOUT)
    elif ahead < b_s.shape[0]:
        o_key = opaque(gl.arange(0, b_s.shape[0], gl.SliceLayout(1, LAYOUT)))
        b_s = mask_keys(b_s, gl.where(o_key < ahead, -(1 << 30), 1 << 30), 0, LAYOUT)
    return b_s


@jit
def issue_scores(k_own, q_ring, count):
    """Issue a tile's scores, keys down."""
    TILE_Q: gl.constexpr = q_ring.buf.shape[2]
    KEYS: gl.constexpr = k_own.shape[0]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    b_s = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    q = ready(q_ring, count)
    return wgmma(k_own, q.permute((1, 0)), b_s, use_acc=False, is_async=True)


@jit
def issue_dk_dq(b_dk, b_ds, k, shared, count, W: gl.constexpr):
    """Issue dK of a tile, from this warpgroup's dS, and its share of dQ, from both.

    At width 128 warpgroup W makes 64 of dQ's columns from all keys, at width 64 all
    of them from its own keys.
    """
    keys = shared.keys
    KEYS: gl.constexpr = b_ds.shape[0]
    b_dk = wgmma(b_ds, tile(keys.q, count), b_dk, is_async=True)
    SQUARE: gl.constexpr = scores(4, 64)
    b_dq = gl.zeros([64, 64], gl.float32, SQUARE)
    wait_released(keys.do, count)
    ds = shared.ds_buf.index(stage_of(keys.q, count))
    if k.shape[1] == 64:
        ds = ds.slice(W * KEYS, KEYS)
        k = k.slice(W * KEYS, KEYS)
    else:
        k = k.slice(W * 64, 64, 1)
    return b_dk, wgmma(ds.permute((1, 0)), k, b_dq, use_acc=False, is_async=True)


@jit
def dk_dq_and_scores(b_dk, b_ds, k, k_own, shared, count, W: gl.constexpr):
    """Issue dK and dQ of a tile and the next tile's scores; store dQ meanwhile."""
    dq = shared.dq
    b_dk, b_dq = issue_dk_dq(b_dk, b_ds, k, shared, count, W)
    b_s = issue_scores(k_own, shared.keys.q, count + 1)
    wait(dq.empty.index(W), (count & 1) ^ 1)
    # b_ds, the A operand, is not among deps: that would cost 32 instructions.
    b_dk, b_dq = wgmma_wait(1, deps=(b_dk, b_dq))
    store_dq(b_dq, dq, W)
    release(shared.keys.q, count)
    return b_dk, b_s


@jit
def store_dq(b_dq, dq, W: gl.constexpr):
    """Put dQ where its sender takes it from, in the order in which threads hold it.

    Row 16 a + 8 b + c and column 8 d + 2 e + f are in warp a, thread 4 c + e. In the order
    a, d, c, e, b, f every thread stores four neighbours and no two want the same bank. Where a
    number lies does not matter to a sum; whoever reads it at the end puts it right.
    """
    b_dq = b_dq.reshape([4, 2, 8, 8, 4, 2]).permute([0, 3, 2, 4, 1, 5])
    dq.buf.index(W).store(b_dq.reshape([dq.buf.shape[1], dq.buf.shape[2]]))
    fence()
    arrive(dq.full.index(W))


@jit
def dv_ds(b_s, b_dv, v_own, shared, count, ahead, scale, CAUSAL: gl.constexpr, W: gl.constexpr):
    """From a tile's scores, which are being made, to dV and dS."""
    q_ring = shared.keys.q
    do_ring = shared.keys.do
    KEYS: gl.constexpr = v_own.shape[0]
    TILE_Q: gl.constexpr = do_ring.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    O_LAYOUT: gl.constexpr = scores(4, v_own.shape[1])
    do = ready(do_ring, count)
    b_dp = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    b_dp -= rows_of(do_ring, count, S_LAYOUT)[None, :]
    b_dp = wgmma(v_own, do.permute((1, 0)), b_dp, is_async=True)
    b_s = wgmma_wait(1, deps=(b_s,))
    b_s = mask_tile(b_s, ahead, CAUSAL, S_LAYOUT)
    b_shift = rows_of(q_ring, count, S_LAYOUT)
    b_p = gl.exp2(b_s * scale + b_shift[None, :])
    b_a = gl.convert_layout(b_p.to(do.dtype), register_a(O_LAYOUT))
    b_dv = wgmma(b_a, do, b_dv, is_async=True)
    b_dp = wgmma_wait(1, deps=(b_dp,))
    b_ds = (b_p * b_dp).to(do.dtype)
    # Nobody reads the stage's dS any more: else the loader would not have brought this tile's Q.
    shared.ds_buf.index(stage_of(do_ring, count)).slice(W * KEYS, KEYS).store(b_ds)
    b_dv, b_a = wgmma_wait(0, deps=(b_dv, b_a))
    fence()
    release(do_ring, count)
    return b_dv, gl.convert_layout(b_ds, register_a(O_LAYOUT))
