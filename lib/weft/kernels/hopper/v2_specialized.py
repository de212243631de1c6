"""FlashAttention on Hopper, version 2: one warp loads, two or three warpgroups compute.

Shah et al. 2024, algorithm 1. The loading warp needs few registers and gives the rest away, so a
warpgroup can keep 64 rows of scores and of output. The blocks stay: one to a multiprocessor, each
takes one piece of work after the other, and the next one is loaded while the last is written.

Barriers, in rings of stages. A tile of keys or values is the c-th that its ring has seen, counted
on over all pieces of work; it takes stage c % STAGES, and round c // STAGES of that stage.

    barrier      arrivals of a phase                     who waits, before
    q_full[w]    the loader; the bytes of Q              warpgroup w, its first product
    q_empty[w]   warpgroup w, once O has left            the loader, the next Q of w
    k_full[s]    the loader; the bytes of a tile         every warpgroup, a product with it
    k_empty[s]   every warpgroup, behind that product    the loader, the next tile of the stage
    v_full[s], v_empty[s]                                likewise

Round r waits for full's phase r & 1, and for empty's phase (r & 1) ^ 1: the very first tile of a
stage finds it empty without anybody's word. Q is a ring of one stage for each warpgroup.
"""

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    barriers,
    expect,
    fence,
    gl,
    jit,
    register_a,
    scores,
    tma_load,
    tma_store,
    tma_store_wait,
    wait,
    wgmma,
    wgmma_wait,
    workers,
)
from weft.kernels.hopper.tile import (  # fmt: skip
    SIZES,
    column,
    finish,
    hide,
    last_seen,
    pieces,
    place,
    softmax,
    span,
)


@jit(do_not_specialize=SIZES)
def forward(
    q_desc, k_desc, v_desc, o_desc, p_lse, T, S, lead, H, R, p_work, scale,
    CONSUME: gl.constexpr, CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr,
    GROUPS: gl.constexpr,
):  # fmt: skip
    """O and its log-sum-exp, by 2 or 3 warpgroups that CONSUME, and a warp that loads for them."""
    q_buf = gl.allocate_shared_memory(
        q_desc.dtype, [GROUPS] + q_desc.block_type.shape, q_desc.layout
    )
    kv: gl.constexpr = [STAGES] + k_desc.block_type.shape
    k_buf = gl.allocate_shared_memory(k_desc.dtype, kv, k_desc.layout)
    v_buf = gl.allocate_shared_memory(v_desc.dtype, kv, v_desc.layout)
    bufs = (q_buf, k_buf, v_buf)
    q_bars = (barriers(GROUPS, 1), barriers(GROUPS, 1))
    k_bars = (barriers(STAGES, 1), barriers(STAGES, GROUPS))
    v_bars = (barriers(STAGES, 1), barriers(STAGES, GROUPS))
    turns = barriers(GROUPS, 1)
    bars = (q_bars, k_bars, v_bars, turns)
    sizes = (T, S, lead, H, R, p_work)
    out = (o_desc, p_lse, scale)
    descs = (q_desc, k_desc, v_desc)
    if GROUPS == 2:
        workers(
            [
                (consumer, (CONSUME, out, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, GROUPS, 0)),
                (consumer, (CONSUME, out, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, GROUPS, 1)),
                (produce, (descs, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, GROUPS)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        workers(
            [
                (consumer, (CONSUME, out, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, GROUPS, 0)),
                (consumer, (CONSUME, out, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, GROUPS, 1)),
                (consumer, (CONSUME, out, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, GROUPS, 2)),
                (produce, (descs, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, GROUPS)),
            ],
            [4, 4, 1],
            [160, 160, 32],
        )


@jit
def consumer(
    CONSUME: gl.constexpr, out, bufs, bars, sizes, CAUSAL: gl.constexpr, TILE_K: gl.constexpr,
    STAGES: gl.constexpr, GROUPS: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Warpgroup W of a version."""
    CONSUME(out, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, GROUPS, W)


@jit
def produce(
    descs, bufs, bars, sizes,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr,
    GROUPS: gl.constexpr,
):  # fmt: skip
    """The loader: each piece of work's Q, then keys and values, from the right."""
    q_desc, k_desc, v_desc = descs
    q_buf, k_buf, v_buf = bufs
    q_bars, k_bars, v_bars, turns = bars
    T, S, lead, H, R, p_work = sizes
    ROWS: gl.constexpr = q_desc.block_type.shape[1]
    count = 0  # tiles of keys so far
    for done in range(pieces(p_work)):
        i_b, i_h, i_q = place(p_work, done, T, H, GROUPS * ROWS)
        first = i_q * GROUPS * ROWS
        for w in gl.static_range(GROUPS):
            at = [i_b, first + w * ROWS, i_h, 0]
            wait(q_bars[1].index(w), (done & 1) ^ 1)
            expect(q_bars[0].index(w), q_desc.block_type.nbytes)
            tma_load(q_desc, at, q_bars[0].index(w), q_buf.index(w))
        tiles = span(first, S, lead, CAUSAL, GROUPS * ROWS, TILE_K)[0]
        for j in range(tiles):
            at = [i_b, (tiles - 1 - j) * TILE_K, i_h // R, 0]
            fill(k_desc, at, k_bars, k_buf, count, STAGES)
            fill(v_desc, at, v_bars, v_buf, count, STAGES)
            count += 1


@jit
def place_of(count, STAGES: gl.constexpr):
    """The stage of a ring's count-th tile. That a count is not negative saves two instructions."""
    return (count & 0x7FFFFFFF) % STAGES


@jit
def round_of(count, STAGES: gl.constexpr):
    """The last bit of how often that stage has been filled before: the phase to wait for."""
    return (count & 0x7FFFFFFF) // STAGES & 1


@jit
def fill(desc, at, bars, buf, count, STAGES: gl.constexpr):
    """Ask for a tile, the count-th of its ring, as soon as its stage is free."""
    stage = place_of(count, STAGES)
    wait(bars[1].index(stage), round_of(count, STAGES) ^ 1)
    expect(bars[0].index(stage), desc.block_type.nbytes)
    tma_load(desc, at, bars[0].index(stage), buf.index(stage))


@jit
def filled(bars, count, STAGES: gl.constexpr, pred=True):
    """Wait until the count-th tile of a ring is there, if there is one."""
    wait(bars[0].index(place_of(count, STAGES)), round_of(count, STAGES), pred=pred)


@jit
def tile(buf, count, STAGES: gl.constexpr):
    """The count-th tile of a ring as a matrix, one row to a key."""
    return buf.index(place_of(count, STAGES)).reshape([buf.shape[2], buf.shape[4]])


@jit
def ready(bars, buf, count, STAGES: gl.constexpr):
    """The count-th tile of a ring, once it is there."""
    filled(bars, count, STAGES)
    return tile(buf, count, STAGES)


@jit
def release(bars, count, STAGES: gl.constexpr):
    """Say that this warpgroup is done with the count-th tile of a ring."""
    arrive(bars[1].index(place_of(count, STAGES)))


@jit
def consume(
    out, bufs, bars, sizes,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr,
    GROUPS: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Warpgroup W, in the order of the formula, and each product is waited for."""
    o_desc, p_lse, scale = out
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
        for j in range(tiles):
            k = ready(k_bars, k_buf, count, STAGES)
            b_s = wgmma(q, k.permute((1, 0)), b_s, use_acc=False, is_async=True)
            b_s = wgmma_wait(0, deps=(b_s,))
            release(k_bars, count, STAGES)
            if tiles - 1 - j >= full:
                b_s = hide(b_s, o_last, tiles - 1 - j, S_LAYOUT)
            b_p, b_top, b_sum, b_shrink = softmax(b_s, b_top, b_sum, scale)
            b_o = b_o * column(b_shrink, O_LAYOUT)
            b_p = gl.convert_layout(b_p.to(v_buf.dtype), register_a(O_LAYOUT))
            v = ready(v_bars, v_buf, count, STAGES)
            b_o = wgmma(b_p, v, b_o, is_async=True)
            b_o = wgmma_wait(0, deps=(b_o,))
            release(v_bars, count, STAGES)
            count += 1
        write(out, q_buf, b_o, b_top, b_sum, i_b, i_h, first, T, H, O_LAYOUT, W)
        arrive(q_bars[1].index(W))


@jit
def write(
    out, q_buf, b_o, b_top, b_sum, i_b, i_h, first, T, H,
    O_LAYOUT: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Rows of O and their log-sum-exp, through where Q lay: nobody needs it any more."""
    o_desc, p_lse, _ = out
    b_top = gl.convert_layout(b_top, gl.SliceLayout(1, O_LAYOUT))
    b_sum = gl.convert_layout(b_sum, gl.SliceLayout(1, O_LAYOUT))
    b_o, b_lse = finish(b_o, b_top, b_sum)
    o_q = first + gl.arange(0, b_o.shape[0], gl.SliceLayout(1, O_LAYOUT))
    gl.store(p_lse + (i_b * H + i_h) * T + o_q, b_lse, mask=o_q < T)
    q_buf.index(W).reshape([b_o.shape[0], b_o.shape[1]]).store(b_o.to(o_desc.dtype))
    fence()
    tma_store(o_desc, [i_b, first, i_h, 0], q_buf.index(W))
    tma_store_wait(0)
