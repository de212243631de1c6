"""The backward pass in one: keys and values stay, queries stream past, and all three sums grow.

FlashAttention-3's order: scores are made once, and five products do what `dq` and
`dkdv` need seven for. dK and dV are summed in registers. A tile's dQ is not the block's
alone, for every block has other keys: the copy engine adds it to numbers of fp32 in memory, in
whatever order the blocks come. So the last bits of dQ may differ from run to run.

A warpgroup has 64 keys and makes dS of them, keys down, which is the left factor of dK. dQ = dS K
sums over keys, so dS also goes through shared memory. At width 128 each warpgroup makes half of
the columns of a tile's dQ, from all keys. At width 64 there is no half for a product to make: each
makes all of it from its own keys, and twice as much is added in memory.

A turn queues dK and dQ of one tile and the scores of the next. So nobody has to wait for the other
warpgroup's dS, which has long been there, and dQ leaves while the scores are made. Of a thread's
240 registers, at width 128, 128 hold dK and dV, twice 32 scores and dP, or scores and dQ, and 16
weights or dS, packed. dP begins at -delta, not at 0: nobody has to hold delta when dS is made.
A block has K, V, two stages of Q, dO and dS, and dQ: 192 KiB and a few rows.

Barriers. Tile c of the queries takes stage c % STAGES, as in `v2_specialized`, and dS likewise.

    barrier       arrivals of a phase                      who waits, before
    k_full        the loader; the bytes of K and V         both warpgroups, their first product
    q_full[s]     the loader; the bytes of a tile of Q     both, scores
    q_empty[s]    both, behind dK and dQ of the tile       the loader, the next Q of the stage
    do_full[s]    the loader; the bytes of a tile of dO    both, dP
    do_empty[s]   both, behind dV, once dS is stored       the loader, the next dO of the stage;
                                                           both, dQ of the tile
    dq_full[w]    warpgroup w, once its dQ is stored       sender w, the addition
    dq_empty[w]   sender w, once that has been read        warpgroup w, its next dQ
    made          both, once dK and dV lie where K and V   the loader, which sends them off

A stage's next dS needs no barrier of its own: its Q comes only when both are done with the last.
At the end K may be overwritten once the last tile's q_empty is complete.
"""

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    barriers,
    fence,
    gl,
    gluon,
    here,
    jit,
    register_a,
    scores,
    tma_add,
    tma_store_wait,
    wait,
    wgmma,
    wgmma_wait,
    workers,
)
from weft.kernels.hopper.dkdv import hide_keys, per_row, place_keys, produce, span
from weft.kernels.hopper.tile import SIZES
from weft.kernels.hopper.v2_specialized import filled, place_of, ready, release, round_of, tile


@gluon.constexpr_function
def crossing():
    """How dS lies in shared memory, keys down: 64 queries are a row of 128 bytes."""
    return gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)


@jit(do_not_specialize=SIZES)
def fused(
    q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dq_desc, dk_desc, dv_desc,
    T, S, lead, H, R, p_work, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dQ, dK and dV, by two warpgroups of 64 keys, a warp that loads and two that send."""
    own: gl.constexpr = [1] + k_desc.block_type.shape
    ring: gl.constexpr = [STAGES] + q_desc.block_type.shape
    k_buf = gl.allocate_shared_memory(k_desc.dtype, own, k_desc.layout)
    v_buf = gl.allocate_shared_memory(k_desc.dtype, own, k_desc.layout)
    q_buf = gl.allocate_shared_memory(q_desc.dtype, ring, q_desc.layout)
    do_buf = gl.allocate_shared_memory(q_desc.dtype, ring, q_desc.layout)
    per_row: gl.constexpr = [STAGES] + shift_desc.block_type.shape
    shift_buf = gl.allocate_shared_memory(gl.float32, per_row, shift_desc.layout)
    delta_buf = gl.allocate_shared_memory(gl.float32, per_row, shift_desc.layout)
    crossed: gl.constexpr = [STAGES, k_desc.block_type.shape[1], q_desc.block_type.shape[1]]
    CROSSING: gl.constexpr = crossing()
    ds_buf = gl.allocate_shared_memory(k_desc.dtype, crossed, CROSSING)
    squares: gl.constexpr = [2] + dq_desc.block_type.shape
    dq_buf = gl.allocate_shared_memory(gl.float32, squares, dq_desc.layout)
    q_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    do_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    loads = (barriers(1, 1), q_bars, do_bars, barriers(1, 2))
    dq_bars = (barriers(2, 1), barriers(2, 1))
    sizes = (T, S, lead, H, R, p_work)
    descs = (q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc)
    loaded = (k_buf, v_buf, q_buf, do_buf, shift_buf, delta_buf, k_buf, v_buf)
    bufs = (k_buf, v_buf, q_buf, do_buf, shift_buf, delta_buf, ds_buf, dq_buf)
    bars = (loads, dq_bars)
    workers(
        [
            (consume, (scale, bufs, bars, sizes, CAUSAL, STAGES, 0)),
            (consume, (scale, bufs, bars, sizes, CAUSAL, STAGES, 1)),
            (produce, (descs, loaded, loads, sizes, CAUSAL, STAGES, 1)),
            (send, (dq_desc, q_buf, k_buf, dq_buf, dq_bars, sizes, CAUSAL, 0)),
            (send, (dq_desc, q_buf, k_buf, dq_buf, dq_bars, sizes, CAUSAL, 1)),
        ],
        [4, 1, 1, 1],
        [240, 24, 24, 24],
    )


@jit
def send(dq_desc, q_buf, k_buf, dq_buf, dq_bars, sizes, CAUSAL: gl.constexpr, W: gl.constexpr):
    """Have what warpgroup W makes of each tile's dQ added to what is in memory."""
    T, S, lead, H, R, p_work = sizes
    T, S = here(T), here(S)
    TILE_Q: gl.constexpr = q_buf.shape[2]
    i_b, i_g, first = place_keys(p_work, S, H // R, k_buf.shape[2])
    begin, tiles = span(first, T, lead, CAUSAL, TILE_Q)
    count = 0
    for i_h in range(i_g * R, i_g * R + R):
        for i_q in range(begin, tiles):
            wait(dq_bars[0].index(W), count & 1)
            square = (i_b * H + i_h) * tiles + i_q
            if k_buf.shape[4] == 128:
                square = square * 2 + W
            tma_add(dq_desc, [square * dq_buf.shape[1], 0], dq_buf.index(W))
            tma_store_wait(0)
            arrive(dq_bars[1].index(W))
            count += 1


@jit
def consume(
    scale, bufs, bars, sizes, CAUSAL: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Warpgroup W: its 64 rows of dK and dV, and its share of each tile's dQ."""
    k_buf, v_buf, q_buf, do_buf, shift_buf, delta_buf, ds_buf, dq_buf = bufs
    loads, dq_bars = bars
    k_full, q_bars, do_bars, made = loads
    T, S, lead, H, R, p_work = sizes
    T, S = here(T), here(S)
    KEYS: gl.constexpr = k_buf.shape[2] // 2
    TILE_Q: gl.constexpr = q_buf.shape[2]
    K: gl.constexpr = k_buf.shape[4]
    O_LAYOUT: gl.constexpr = scores(4, K)
    k = k_buf.index(0).reshape([2 * KEYS, K])
    k_own = k.slice(W * KEYS, KEYS)
    v_own = v_buf.index(0).reshape([2 * KEYS, K]).slice(W * KEYS, KEYS)
    i_b, i_g, first = place_keys(p_work, S, H // R, 2 * KEYS)
    begin, tiles = span(first, T, lead, CAUSAL, TILE_Q)
    first += W * KEYS
    start = S - first  # how many keys there are
    if CAUSAL:
        start = first - lead - begin * TILE_Q  # how far they are ahead of a head's first tile
    stop = start - (tiles - begin) * TILE_Q
    ahead = start
    b_dk = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    b_dv = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    wait(k_full.index(0), 0)
    b_s = begin_scores(k_own, q_bars, q_buf, 0, STAGES)
    b_dv, b_ds = weigh(
        b_s, b_dv, v_own, do_buf, shift_buf, delta_buf, ds_buf, do_bars,
        0, start, scale, CAUSAL, STAGES, W,
    )  # fmt: skip
    last = R * (tiles - begin) - 1
    for count in range(last):
        if CAUSAL:
            ahead -= TILE_Q
            if ahead == stop:
                ahead = start
        b_dk, b_s = turn(
            b_dk, b_ds, k, k_own, q_buf, ds_buf, dq_buf, q_bars, do_bars, dq_bars,
            count, STAGES, W,
        )  # fmt: skip
        b_dv, b_ds = weigh(
            b_s, b_dv, v_own, do_buf, shift_buf, delta_buf, ds_buf, do_bars,
            count + 1, ahead, scale, CAUSAL, STAGES, W,
        )  # fmt: skip
    b_dk, b_dq = begin_sums(b_dk, b_ds, k, q_buf, ds_buf, do_bars, last, STAGES, W)
    wait(dq_bars[1].index(W), (last & 1) ^ 1)
    b_dk, b_dq = wgmma_wait(0, deps=(b_dk, b_dq))
    hand_in(b_dq, dq_buf, dq_bars, W)
    release(q_bars, last, STAGES)
    released(q_bars, last, STAGES)  # K is nobody's any more
    k_own.store((b_dk * (scale * 0.6931471805599453)).to(k_buf.dtype))  # scale had log2(e) in it
    v_own.store(b_dv.to(v_buf.dtype))
    fence()
    arrive(made.index(0))


@jit
def hide_some(b_s, ahead, CAUSAL: gl.constexpr, LAYOUT: gl.constexpr):
    """-inf for scores of keys that a query does not see, or that there are not.

    With a causal mask `ahead` is how far the first key lies ahead of the tile's first query, and
    no query sees a key that does not exist. Without one it is how many keys there are: dQ would
    sum over the others. Little is kept from tile to tile, for registers are dear.
    """
    if CAUSAL:
        if ahead + b_s.shape[0] > 1:
            o_key = here(gl.arange(0, b_s.shape[0], gl.SliceLayout(1, LAYOUT)))
            b_s = hide_keys(b_s, ahead + o_key, 0, LAYOUT)
    elif ahead < b_s.shape[0]:
        o_key = here(gl.arange(0, b_s.shape[0], gl.SliceLayout(1, LAYOUT)))
        b_s = hide_keys(b_s, gl.where(o_key < ahead, -(1 << 30), 1 << 30), 0, LAYOUT)
    return b_s


@jit
def begin_scores(k_own, q_bars, q_buf, count, STAGES: gl.constexpr):
    """Queue a tile's scores, keys down."""
    TILE_Q: gl.constexpr = q_buf.shape[2]
    KEYS: gl.constexpr = k_own.shape[0]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    b_s = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    q = ready(q_bars, q_buf, count, STAGES)
    return wgmma(k_own, q.permute((1, 0)), b_s, use_acc=False, is_async=True)


@jit
def begin_sums(
    b_dk, b_ds, k, q_buf, ds_buf, do_bars,
    count, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Queue dK of a tile, from this warpgroup's dS, and its share of dQ."""
    KEYS: gl.constexpr = b_ds.shape[0]
    b_dk = wgmma(b_ds, tile(q_buf, count, STAGES), b_dk, is_async=True)
    SQUARE: gl.constexpr = scores(4, 64)
    b_dq = gl.zeros([64, 64], gl.float32, SQUARE)
    released(do_bars, count, STAGES)
    ds = ds_buf.index(place_of(count, STAGES))
    if k.shape[1] == 64:
        ds = ds.slice(W * KEYS, KEYS)
        k = k.slice(W * KEYS, KEYS)
    else:
        k = k.slice(W * 64, 64, 1)
    return b_dk, wgmma(ds.permute((1, 0)), k, b_dq, use_acc=False, is_async=True)


@jit
def released(bars, count, STAGES: gl.constexpr):
    """Wait until both warpgroups are done with the count-th tile of a ring."""
    wait(bars[1].index(place_of(count, STAGES)), round_of(count, STAGES))


@jit
def turn(
    b_dk, b_ds, k, k_own, q_buf, ds_buf, dq_buf, q_bars, do_bars, dq_bars,
    count, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Queue the rest of a tile and the next scores; under these dQ goes away."""
    b_dk, b_dq = begin_sums(b_dk, b_ds, k, q_buf, ds_buf, do_bars, count, STAGES, W)
    b_s = begin_scores(k_own, q_bars, q_buf, count + 1, STAGES)
    wait(dq_bars[1].index(W), (count & 1) ^ 1)
    b_dk, b_dq = wgmma_wait(1, deps=(b_dk, b_dq))
    hand_in(b_dq, dq_buf, dq_bars, W)
    release(q_bars, count, STAGES)
    return b_dk, b_s


@jit
def hand_in(b_dq, dq_buf, dq_bars, W: gl.constexpr):
    """Put dQ where its sender takes it from, in the order in which threads hold it.

    Row 16 a + 8 b + c and column 8 d + 2 e + f are in warp a, thread 4 c + e. In the order
    a, d, c, e, b, f every thread stores four neighbours and no two want the same bank. Where a
    number lies does not matter to a sum; whoever reads it at the end puts it right.
    """
    b_dq = b_dq.reshape([4, 2, 8, 8, 4, 2]).permute([0, 3, 2, 4, 1, 5])
    dq_buf.index(W).store(b_dq.reshape([dq_buf.shape[1], dq_buf.shape[2]]))
    fence()
    arrive(dq_bars[0].index(W))


@jit
def weigh(
    b_s, b_dv, v_own, do_buf, shift_buf, delta_buf, ds_buf, do_bars,
    count, ahead, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """From a tile's scores, which are being made, to dV and dS."""
    KEYS: gl.constexpr = v_own.shape[0]
    TILE_Q: gl.constexpr = do_buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    O_LAYOUT: gl.constexpr = scores(4, do_buf.shape[4])
    do = ready(do_bars, do_buf, count, STAGES)
    b_dp = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    b_dp -= per_row(delta_buf, count, STAGES, S_LAYOUT)[None, :]
    b_dp = wgmma(v_own, do.permute((1, 0)), b_dp, is_async=True)
    b_s = wgmma_wait(1, deps=(b_s,))
    b_s = hide_some(b_s, ahead, CAUSAL, S_LAYOUT)
    b_shift = per_row(shift_buf, count, STAGES, S_LAYOUT)
    b_p = gl.exp2(b_s * scale + b_shift[None, :])
    b_w = gl.convert_layout(b_p.to(do_buf.dtype), register_a(O_LAYOUT))
    filled(do_bars, count, STAGES)  # it is; a branch: no wait for products moves up
    b_dv = wgmma(b_w, do, b_dv, is_async=True)
    b_dp = wgmma_wait(1, deps=(b_dp,))
    b_ds = (b_p * b_dp).to(do_buf.dtype)
    filled(do_bars, count, STAGES)  # it is; a branch here saves a register, and so a spill
    # Nobody reads the stage's dS any more: else the loader would not have brought this tile's Q.
    ds_buf.index(place_of(count, STAGES)).slice(W * KEYS, KEYS).store(b_ds)
    b_dv = wgmma_wait(0, deps=(b_dv,))
    fence()
    release(do_bars, count, STAGES)
    return b_dv, gl.convert_layout(b_ds, register_a(O_LAYOUT))
