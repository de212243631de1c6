"""The gradient of Q: a tile of queries stays, keys and values stream past, as in the forward pass.

dQ = scale * dS K, where dS = P * (dP - delta), P is made again from Q, K and the log-sum-exp, and
dP = dO V^T. Every row of dQ is one warpgroup's, summed in one order: the same bits every time.

Barriers: those of `v2_specialized`, where "Q" is now Q and dO, which arrive together. No turns.
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
from weft.kernels.hopper.tile import SIZES, hide, last_seen, padded, pieces, place, span
from weft.kernels.hopper.v2_specialized import fill, filled, ready, release


@jit(do_not_specialize=SIZES)
def dq(
    q_desc, k_desc, v_desc, do_desc, dq_desc, p_shift, p_delta,
    T, S, lead, H, R, p_work, scale,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dQ, by two warpgroups of 64 rows and a warp that loads for them."""
    own: gl.constexpr = [2] + q_desc.block_type.shape
    kv: gl.constexpr = [STAGES] + k_desc.block_type.shape
    q_buf = gl.allocate_shared_memory(q_desc.dtype, own, q_desc.layout)
    do_buf = gl.allocate_shared_memory(q_desc.dtype, own, q_desc.layout)
    k_buf = gl.allocate_shared_memory(k_desc.dtype, kv, k_desc.layout)
    v_buf = gl.allocate_shared_memory(v_desc.dtype, kv, v_desc.layout)
    bufs = (q_buf, do_buf, k_buf, v_buf)
    q_bars = (barriers(2, 1), barriers(2, 1))
    k_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    v_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    bars = (q_bars, k_bars, v_bars)
    sizes = (T, S, lead, H, R, p_work)
    rest = (dq_desc, p_shift, p_delta, scale)
    descs = (q_desc, k_desc, v_desc, do_desc)
    workers(
        [
            (consume, (rest, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, 0)),
            (consume, (rest, bufs, bars, sizes, CAUSAL, TILE_K, STAGES, 1)),
            (produce, (descs, bufs, bars, sizes, CAUSAL, TILE_K, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )


@jit
def produce(
    descs, bufs, bars, sizes,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The loader: each piece of work's Q and dO, then its keys and values."""
    q_desc, k_desc, v_desc, do_desc = descs
    q_buf, do_buf, k_buf, v_buf = bufs
    q_bars, k_bars, v_bars = bars
    T, S, lead, H, R, p_work = sizes
    ROWS: gl.constexpr = q_desc.block_type.shape[1]
    count = 0
    for done in range(pieces(p_work)):
        i_b, i_h, i_q = place(p_work, done, T, H, 2 * ROWS)
        first = i_q * 2 * ROWS
        for w in gl.static_range(2):
            at = [i_b, first + w * ROWS, i_h, 0]
            full = q_bars[0].index(w)
            wait(q_bars[1].index(w), (done & 1) ^ 1)
            expect(full, 2 * q_desc.block_type.nbytes)
            tma_load(q_desc, at, full, q_buf.index(w))
            tma_load(do_desc, at, full, do_buf.index(w))
        tiles = span(first, S, lead, CAUSAL, 2 * ROWS, TILE_K)[0]
        for j in range(tiles):
            at = [i_b, (tiles - 1 - j) * TILE_K, i_h // R, 0]
            fill(k_desc, at, k_bars, k_buf, count, STAGES)
            fill(v_desc, at, v_bars, v_buf, count, STAGES)
            count += 1


@jit
def consume(
    rest, bufs, bars, sizes,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Warpgroup W: its 64 rows of dQ over all tiles of keys, the hidden ones first."""
    dq_desc, p_shift, p_delta, scale = rest
    q_buf, do_buf, k_buf, v_buf = bufs
    q_bars, k_bars, v_bars = bars
    T, S, lead, H, R, p_work = sizes
    ROWS: gl.constexpr = q_buf.shape[2]
    K: gl.constexpr = q_buf.shape[4]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K)
    O_LAYOUT: gl.constexpr = scores(4, K)
    q = q_buf.index(W).reshape([ROWS, K])
    do = do_buf.index(W).reshape([ROWS, K])
    count = 0
    for done in range(pieces(p_work)):
        i_b, i_h, i_q = place(p_work, done, T, H, 2 * ROWS)
        first = i_q * 2 * ROWS
        tiles, full = span(first, S, lead, CAUSAL, 2 * ROWS, TILE_K)
        first += W * ROWS
        o_last = last_seen(first, S, lead, CAUSAL, ROWS, S_LAYOUT)
        o_row = (
            (i_b * H + i_h) * padded(T) + first + gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))
        )
        b_shift = gl.load(p_shift + o_row)
        b_delta = gl.load(p_delta + o_row)
        b_dq = gl.zeros([ROWS, K], gl.float32, O_LAYOUT)
        wait(q_bars[0].index(W), done & 1)
        for i_k in range(tiles - 1, full - 1, -1):
            b_dq = step(
                b_dq, b_shift, b_delta, o_last, q, do, k_buf, v_buf, k_bars, v_bars,
                count, i_k, scale, True, STAGES,
            )  # fmt: skip
            count += 1
        for i_k in range(gl.minimum(tiles, full) - 1, -1, -1):
            b_dq = step(
                b_dq, b_shift, b_delta, o_last, q, do, k_buf, v_buf, k_bars, v_bars,
                count, i_k, scale, False, STAGES,
            )  # fmt: skip
            count += 1
        q.store((b_dq * (scale * 0.6931471805599453)).to(dq_desc.dtype))  # scale had log2(e) in it
        fence()
        tma_store(dq_desc, [i_b, first, i_h, 0], q_buf.index(W))
        tma_store_wait(0)
        arrive(q_bars[1].index(W))


@jit
def step(
    b_dq, b_shift, b_delta, o_last, q, do, k_buf, v_buf, k_bars, v_bars, count, i_k, scale,
    EDGE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """One tile of keys: scores and dP are queued together, and dP runs under the exponentials."""
    ROWS: gl.constexpr = q.shape[0]
    TILE_K: gl.constexpr = k_buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K)
    O_LAYOUT: gl.constexpr = scores(4, k_buf.shape[4])
    b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
    k = ready(k_bars, k_buf, count, STAGES)
    b_s = wgmma(q, k.permute((1, 0)), b_s, use_acc=False, is_async=True)
    v = ready(v_bars, v_buf, count, STAGES)
    b_dp = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
    b_dp = wgmma(do, v.permute((1, 0)), b_dp, use_acc=False, is_async=True)
    b_s = wgmma_wait(1, deps=(b_s,))
    if EDGE:
        b_s = hide(b_s, o_last, i_k, S_LAYOUT)
    b_p = gl.exp2(b_s * scale + b_shift[:, None])
    filled(v_bars, count, STAGES)  # it is; a branch, across which the next wait does not move up
    b_dp = wgmma_wait(0, deps=(b_dp,))
    release(v_bars, count, STAGES)
    b_ds = b_p * (b_dp - b_delta[:, None])
    b_ds = gl.convert_layout(b_ds.to(k_buf.dtype), register_a(O_LAYOUT))
    b_dq = wgmma(b_ds, k, b_dq, is_async=True)
    b_dq = wgmma_wait(0, deps=(b_dq,))
    release(k_bars, count, STAGES)
    return b_dq
