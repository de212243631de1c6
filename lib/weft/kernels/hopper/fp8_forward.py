"""Version 4 with factors of 8 bits: twice the products per second, and scales to carry along.

Shah et al. 2024, section 3.3. Every tile of Q, K and V has its own scale (block quantisation). The
scales of Q and K go into that of the scores. The output is kept in units of the scale of the
values that were added last, and changes units where it is rescaled anyway.

Two things are asked of the layout. Products of 8 bits want both factors with the summed dim
running fastest, so V comes transposed, [B, G, K, S]. And scores leave a product with columns
0 1 8 9 of each 16 in a thread, where weights are wanted as columns 0 1 2 3; instead of moving
weights between threads, V's keys come in that order (`fp8.KEY_ORDER`).

Weights are times 2^8, which a softmax does not mind: e4m3 ends at 448, and its small numbers are
coarse.

Barriers: those of `v3_pingpong`.
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
from weft.kernels.hopper.tile import SIZES, column, finish, hide, last_seen, pieces, place, span
from weft.kernels.hopper.v2_specialized import fill, filled, place_of, ready, release, tile
from weft.kernels.hopper.v3_pingpong import hand_over, take


@jit(do_not_specialize=SIZES)
def forward(
    q_desc, k_desc, v_desc, o_desc, p_lse, p_q, p_k, p_v, T, S, lead, H, R, p_work, scale,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """O and its log-sum-exp from e4m3 tensors and their scales p_q, p_k, p_v, one to a tile."""
    own: gl.constexpr = [2] + q_desc.block_type.shape
    q_buf = gl.allocate_shared_memory(q_desc.dtype, own, q_desc.layout)
    o_buf = gl.allocate_shared_memory(o_desc.dtype, own, o_desc.layout)
    k_ring: gl.constexpr = [STAGES] + k_desc.block_type.shape
    v_ring: gl.constexpr = [STAGES] + v_desc.block_type.shape
    k_buf = gl.allocate_shared_memory(k_desc.dtype, k_ring, k_desc.layout)
    v_buf = gl.allocate_shared_memory(v_desc.dtype, v_ring, v_desc.layout)
    bufs = (q_buf, k_buf, v_buf, o_buf)
    q_bars = (barriers(2, 1), barriers(2, 1))
    k_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    v_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    bars = (q_bars, k_bars, v_bars, barriers(2, 1))
    sizes = (T, S, lead, H, R, p_work)
    rest = (o_desc, p_lse, p_q, p_k, p_v, scale)
    descs = (q_desc, k_desc, v_desc)
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
    """The loader of `v2_specialized`, with V's dims in another order."""
    q_desc, k_desc, v_desc = descs
    q_buf, k_buf, v_buf, o_buf = bufs
    q_bars, k_bars, v_bars, turns = bars
    T, S, lead, H, R, p_work = sizes
    ROWS: gl.constexpr = q_desc.block_type.shape[1]
    count = 0
    for done in range(pieces(p_work)):
        i_b, i_h, i_q = place(p_work, done, T, H, 2 * ROWS)
        first = i_q * 2 * ROWS
        for w in gl.static_range(2):
            wait(q_bars[1].index(w), (done & 1) ^ 1)
            expect(q_bars[0].index(w), q_desc.block_type.nbytes)
            tma_load(q_desc, [i_b, first + w * ROWS, i_h, 0], q_bars[0].index(w), q_buf.index(w))
        tiles = span(first, S, lead, CAUSAL, 2 * ROWS, TILE_K)[0]
        for j in range(tiles):
            o_k = (tiles - 1 - j) * TILE_K
            fill(k_desc, [i_b, o_k, i_h // R, 0], k_bars, k_buf, count, STAGES)
            fill(v_desc, [i_b, i_h // R, 0, o_k], v_bars, v_buf, count, STAGES)
            count += 1


@jit
def consume(
    rest, bufs, bars, sizes,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Warpgroup W: the order of `v4_overlapped`."""
    o_desc, p_lse, p_q, p_k, p_v, scale = rest
    q_buf, k_buf, v_buf, o_buf = bufs
    q_bars, k_bars, v_bars, turns = bars
    T, S, lead, H, R, p_work = sizes
    ROWS: gl.constexpr = q_buf.shape[2]
    K: gl.constexpr = q_buf.shape[4]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K, 8)
    O_LAYOUT: gl.constexpr = scores(4, K, 8)
    ROW: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    q = q_buf.index(W).reshape([ROWS, K])
    count = 0
    turn = 0
    for done in range(pieces(p_work)):
        i_b, i_h, i_q = place(p_work, done, T, H, 2 * ROWS)
        first = i_q * 2 * ROWS
        tiles, full = span(first, S, lead, CAUSAL, 2 * ROWS, TILE_K)
        first += W * ROWS
        i_kv = (i_b * (H // R) + i_h // R) * gl.cdiv(S, TILE_K)
        q_scale = gl.load(p_q + (i_b * H + i_h) * gl.cdiv(T, 2 * ROWS) + i_q) * scale
        v_scale = gl.load(p_v + (i_kv + tiles - 1))
        o_last = last_seen(first, S, lead, CAUSAL, ROWS, S_LAYOUT)
        b_o = gl.zeros([ROWS, K], gl.float32, O_LAYOUT)
        b_top = gl.full([ROWS], float("-inf"), gl.float32, ROW)
        b_sum = gl.zeros([ROWS], gl.float32, ROW)
        b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
        s_scale = gl.load(p_k + (i_kv + tiles - 1)) * q_scale
        wait(q_bars[0].index(W), done & 1)
        k = ready(k_bars, k_buf, count, STAGES)
        b_s = wgmma(q, k.permute((1, 0)), b_s, use_acc=False, is_async=True)
        b_s = wgmma_wait(0, deps=(b_s,))
        release(k_bars, count, STAGES)
        b_s = hide(b_s, o_last, tiles - 1, S_LAYOUT)
        b_p, b_top, b_sum, b_shrink = softmax(b_s, b_top, b_sum, s_scale)
        filled(k_bars, count + 1, STAGES, tiles > 1)
        for i_k in range(tiles - 2, full - 1, -1):
            b_o, b_p, b_top, b_sum, v_scale = pair(
                b_o, b_p, b_top, b_sum, o_last, q, k_buf, v_buf, k_bars, v_bars, turns,
                count, turn, i_k, i_kv + i_k, p_k, p_v, q_scale, v_scale, True, STAGES, W,
            )  # fmt: skip
            count += 1
            turn += 1
        for i_k in range(gl.minimum(tiles - 1, full) - 1, -1, -1):
            b_o, b_p, b_top, b_sum, v_scale = pair(
                b_o, b_p, b_top, b_sum, o_last, q, k_buf, v_buf, k_bars, v_bars, turns,
                count, turn, i_k, i_kv + i_k, p_k, p_v, q_scale, v_scale, False, STAGES, W,
            )  # fmt: skip
            count += 1
            turn += 1
        b_w = weights(b_p, O_LAYOUT)
        v = ready_values(v_bars, v_buf, count, STAGES)
        b_o = wgmma(b_w, v, b_o, is_async=True)
        b_o = wgmma_wait(0, deps=(b_o,))
        release(v_bars, count, STAGES)
        count += 1
        b_top = gl.convert_layout(b_top, gl.SliceLayout(1, O_LAYOUT)) - 8
        b_sum = gl.convert_layout(b_sum, gl.SliceLayout(1, O_LAYOUT))
        b_o, b_lse = finish(b_o * v_scale, b_top, b_sum)
        o_q = first + gl.arange(0, ROWS, gl.SliceLayout(1, O_LAYOUT))
        gl.store(p_lse + (i_b * H + i_h) * T + o_q, b_lse, mask=o_q < T)
        o_buf.index(W).reshape([ROWS, K]).store(b_o.to(o_desc.dtype))
        fence()
        tma_store(o_desc, [i_b, first, i_h, 0], o_buf.index(W))
        tma_store_wait(0)
        arrive(q_bars[1].index(W))


@jit
def pair(
    b_o, b_p, b_top, b_sum, o_last, q, k_buf, v_buf, k_bars, v_bars, turns,
    count, turn, i_k, i_scale, p_k, p_v, q_scale, v_scale,
    EDGE: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """`v4_overlapped.pair`, and the scales of the tile to come, asked for early."""
    ROWS: gl.constexpr = q.shape[0]
    TILE_K: gl.constexpr = k_buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K, 8)
    O_LAYOUT: gl.constexpr = scores(4, k_buf.shape[4], 8)
    s_scale = gl.load(p_k + i_scale) * q_scale
    v_next = gl.load(p_v + i_scale)
    b_w = weights(b_p, O_LAYOUT)
    b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
    k = tile(k_buf, count + 1, STAGES)
    take(turns, turn, W)
    b_s = wgmma(q, k.permute((1, 0)), b_s, use_acc=False, is_async=True)
    v = ready_values(v_bars, v_buf, count, STAGES)
    b_o = wgmma(b_w, v, b_o, is_async=True)
    hand_over(turns, 2, W)
    b_s = wgmma_wait(1, deps=(b_s,))
    release(k_bars, count + 1, STAGES)
    if EDGE:
        b_s = hide(b_s, o_last, i_k, S_LAYOUT)
    b_p, b_top, b_sum, b_shrink = softmax(b_s, b_top, b_sum, s_scale)
    filled(k_bars, count + 2, STAGES, i_k > 0)
    b_o = wgmma_wait(0, deps=(b_o,))
    release(v_bars, count, STAGES)
    b_o = b_o * column(b_shrink * (v_scale / v_next), O_LAYOUT)
    return b_o, b_p, b_top, b_sum, v_next


@jit
def ready_values(bars, buf, count, STAGES: gl.constexpr):
    """The count-th tile of values, once it is there: [keys, K], though it lies the other way."""
    filled(bars, count, STAGES)
    v = buf.index(place_of(count, STAGES)).reshape([buf.shape[3], buf.shape[4]])
    return v.permute((1, 0))


@jit
def softmax(b_s, b_top, b_sum, scale):
    """`tile.softmax` with weights and sum times 2^8."""
    b_new = gl.maximum(b_top, gl.max(b_s, 1) * scale)
    b_ref = gl.where(b_new == float("-inf"), 0.0, b_new)
    b_p = gl.exp2(b_s * scale - (b_ref - 8)[:, None])
    b_shrink = gl.exp2(b_top - b_ref)
    return b_p, b_new, b_sum * b_shrink + gl.sum(b_p, 1), b_shrink


@jit
def weights(b_p, LAYOUT: gl.constexpr):
    """Weights in e4m3, their keys in `KEY_ORDER`: nothing moves between threads."""
    ROWS: gl.constexpr = b_p.shape[0]
    KEYS: gl.constexpr = b_p.shape[1]
    b_w = b_p.reshape([ROWS, KEYS // 16, 2, 4, 2]).permute((0, 1, 3, 2, 4))
    b_w = b_w.reshape([ROWS, KEYS]).to(gl.float8e4nv)
    return gl.convert_layout(b_w, register_a(LAYOUT, 8), assert_trivial=True)
