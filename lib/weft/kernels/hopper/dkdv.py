"""The gradients of K and V: a tile of keys stays, queries and their dO stream past.

dV = P^T dO and dK = scale * dS^T Q. Scores are made transposed, keys down and queries across, for
then P^T and dS^T come out of the products where the next products want their left factors: in
registers. With grouped heads a key sees the queries of all heads that share it, one after the
other. Every row of dK and dV is one warpgroup's, summed in one order: the same bits every time.

A block has one piece of work and is gone, which leaves registers to the sums.

Barriers: as in `v2_specialized`, with the roles exchanged. k_full[w]: warpgroup w's keys and
values, which arrive together, once. q_full[s], q_empty[s], do_full[s], do_empty[s]: rings.
made[w]: warpgroup w has put dK and dV where its K and V lay, and the loader sends them off.
"""

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    barriers,
    expect,
    fence,
    gl,
    here,
    jit,
    register_a,
    scores,
    tma_load,
    tma_store,
    tma_store_wait,
    wait,
    wgmma,
    wgmma_wait,
    where_at_most,
    workers,
)
from weft.kernels.hopper.tile import SIZES, place
from weft.kernels.hopper.v2_specialized import filled, place_of, ready, release, round_of


@jit(do_not_specialize=SIZES)
def dkdv(
    q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc,
    T, S, lead, H, R, p_work, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dK and dV, by two warpgroups of 64 keys and a warp that loads for them."""
    own: gl.constexpr = [2] + k_desc.block_type.shape
    ring: gl.constexpr = [STAGES] + q_desc.block_type.shape
    k_buf = gl.allocate_shared_memory(k_desc.dtype, own, k_desc.layout)
    v_buf = gl.allocate_shared_memory(k_desc.dtype, own, k_desc.layout)
    q_buf = gl.allocate_shared_memory(q_desc.dtype, ring, q_desc.layout)
    do_buf = gl.allocate_shared_memory(q_desc.dtype, ring, q_desc.layout)
    per_row: gl.constexpr = [STAGES] + shift_desc.block_type.shape
    shift_buf = gl.allocate_shared_memory(gl.float32, per_row, shift_desc.layout)
    delta_buf = gl.allocate_shared_memory(gl.float32, per_row, shift_desc.layout)
    bufs = (k_buf, v_buf, q_buf, do_buf, shift_buf, delta_buf, k_buf, v_buf)
    k_full = barriers(2, 1)
    q_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    do_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    bars = (k_full, q_bars, do_bars, barriers(2, 1))
    sizes = (T, S, lead, H, R, p_work)
    descs = (q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc)
    workers(
        [
            (consume, (scale, bufs, bars, sizes, CAUSAL, STAGES, 0)),
            (consume, (scale, bufs, bars, sizes, CAUSAL, STAGES, 1)),
            (produce, (descs, bufs, bars, sizes, CAUSAL, STAGES, 2)),
        ],
        [4, 1],
        [240, 24],
    )


@jit
def place_keys(p_work, S, G, KEYS: gl.constexpr):
    """Batch, kv head and first key of this block's one piece of work."""
    i_b, i_g, i_k = place(p_work, 0, S, G, KEYS)
    return i_b, i_g, i_k * KEYS


@jit
def span(first, T, lead, CAUSAL: gl.constexpr, TILE_Q: gl.constexpr):
    """The first tile of queries that sees any key from `first` on, and how many tiles there are."""
    begin = 0
    if CAUSAL:
        begin = gl.maximum(first - lead, 0) // TILE_Q
    return begin, gl.cdiv(T, TILE_Q)


@jit
def produce(
    descs, bufs, bars, sizes,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr, OWN: gl.constexpr,
):  # fmt: skip
    """The loader: OWN tiles of keys and values, all queries that see them, and what was made."""
    q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc = descs
    k_buf, v_buf, q_buf, do_buf, shift_buf, delta_buf, dk_buf, dv_buf = bufs
    k_full, q_bars, do_bars, made = bars
    T, S, lead, H, R, p_work = sizes
    KEYS: gl.constexpr = k_desc.block_type.shape[1]
    TILE_Q: gl.constexpr = q_desc.block_type.shape[1]
    i_b, i_g, first = place_keys(p_work, S, H // R, OWN * KEYS)
    for w in gl.static_range(OWN):
        at = [i_b, first + w * KEYS, i_g, 0]
        expect(k_full.index(w), 2 * k_desc.block_type.nbytes)
        tma_load(k_desc, at, k_full.index(w), k_buf.index(w))
        tma_load(v_desc, at, k_full.index(w), v_buf.index(w))
    begin, tiles = span(first, T, lead, CAUSAL, TILE_Q)
    count = 0
    for i_h in range(i_g * R, i_g * R + R):
        for i_q in range(begin, tiles):
            at = [i_b, i_q * TILE_Q, i_h, 0]
            row = [i_b * H + i_h, i_q * TILE_Q]
            fill_rows(q_desc, at, shift_desc, row, q_bars, q_buf, shift_buf, count, STAGES)
            fill_rows(do_desc, at, delta_desc, row, do_bars, do_buf, delta_buf, count, STAGES)
            count += 1
    for w in gl.static_range(OWN):
        at = [i_b, first + w * KEYS, i_g, 0]
        wait(made.index(w), 0)
        tma_store(dk_desc, at, dk_buf.index(w))
        tma_store(dv_desc, at, dv_buf.index(w))
    tma_store_wait(0)


@jit
def fill_rows(desc, at, row_desc, row, bars, buf, row_buf, count, STAGES: gl.constexpr):
    """Ask for a tile of a ring and a number for each of its rows, as soon as the stage is free."""
    stage = place_of(count, STAGES)
    full = bars[0].index(stage)
    wait(bars[1].index(stage), round_of(count, STAGES) ^ 1)
    expect(full, desc.block_type.nbytes + row_desc.block_type.nbytes)
    tma_load(desc, at, full, buf.index(stage))
    tma_load(row_desc, row, full, row_buf.index(stage))


@jit
def per_row(row_buf, count, STAGES: gl.constexpr, LAYOUT: gl.constexpr):
    """The numbers that came with the count-th tile of a ring, one to a column of LAYOUT."""
    row = row_buf.index(place_of(count, STAGES)).reshape([row_buf.shape[2]])
    return row.load(gl.SliceLayout(0, LAYOUT))


@jit
def consume(
    scale, bufs, bars, sizes, CAUSAL: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Warpgroup W: its 64 rows of dK and dV over all heads and tiles of queries."""
    k_buf, v_buf, q_buf, do_buf, shift_buf, delta_buf, dk_buf, dv_buf = bufs
    k_full, q_bars, do_bars, made = bars
    T, S, lead, H, R, p_work = sizes
    KEYS: gl.constexpr = k_buf.shape[2]
    TILE_Q: gl.constexpr = q_buf.shape[2]
    K: gl.constexpr = k_buf.shape[4]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    O_LAYOUT: gl.constexpr = scores(4, K)
    k = k_buf.index(W).reshape([KEYS, K])
    v = v_buf.index(W).reshape([KEYS, K])
    i_b, i_g, first = place_keys(p_work, S, H // R, 2 * KEYS)
    begin, tiles = span(first, T, lead, CAUSAL, TILE_Q)
    first += W * KEYS
    full = begin  # from this tile on every query sees all of these keys
    if CAUSAL:
        full = gl.minimum(gl.cdiv(gl.maximum(first + KEYS - 1 - lead, 0), TILE_Q), tiles)
    o_first = here(first - lead + gl.arange(0, KEYS, gl.SliceLayout(1, S_LAYOUT)))
    b_dk = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    b_dv = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    wait(k_full.index(W), 0)
    count = 0
    for i_h in range(i_g * R, i_g * R + R):
        for i_q in range(begin, tiles):
            b_dk, b_dv = step(
                b_dk, b_dv, o_first, k, v, q_buf, do_buf, shift_buf, delta_buf, q_bars, do_bars,
                count, i_q, full, scale, STAGES,
            )  # fmt: skip
            count += 1
    k.store((b_dk * (scale * 0.6931471805599453)).to(k_buf.dtype))  # scale had log2(e) in it
    v.store(b_dv.to(v_buf.dtype))
    fence()
    arrive(made.index(W))


@jit
def step(
    b_dk, b_dv, o_first, k, v, q_buf, do_buf, shift_buf, delta_buf, q_bars, do_bars,
    count, i_q, full, scale, STAGES: gl.constexpr,
):  # fmt: skip
    """One tile of queries: dP under the exponentials, dV under what makes dS."""
    KEYS: gl.constexpr = k.shape[0]
    TILE_Q: gl.constexpr = q_buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    O_LAYOUT: gl.constexpr = scores(4, q_buf.shape[4])
    b_s = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    q = ready(q_bars, q_buf, count, STAGES)
    b_s = wgmma(k, q.permute((1, 0)), b_s, use_acc=False, is_async=True)
    do = ready(do_bars, do_buf, count, STAGES)
    b_dp = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    b_dp = wgmma(v, do.permute((1, 0)), b_dp, use_acc=False, is_async=True)
    b_s = wgmma_wait(1, deps=(b_s,))
    if i_q < full:
        b_s = hide_keys(b_s, o_first, i_q, S_LAYOUT)
    b_shift = per_row(shift_buf, count, STAGES, S_LAYOUT)
    b_p = gl.exp2(b_s * scale + b_shift[None, :])
    b_w = gl.convert_layout(b_p.to(q_buf.dtype), register_a(O_LAYOUT))
    filled(do_bars, count, STAGES)  # it is; a branch: no wait for products moves up
    b_dv = wgmma(b_w, do, b_dv, is_async=True)
    b_dp = wgmma_wait(1, deps=(b_dp,))
    b_ds = b_p * (b_dp - per_row(delta_buf, count, STAGES, S_LAYOUT)[None, :])
    b_ds = gl.convert_layout(b_ds.to(q_buf.dtype), register_a(O_LAYOUT))
    b_dk = wgmma(b_ds, q, b_dk, is_async=True)
    b_dk, b_dv = wgmma_wait(0, deps=(b_dk, b_dv))
    fence()
    release(q_bars, count, STAGES)
    release(do_bars, count, STAGES)
    return b_dk, b_dv


@jit
def hide_keys(b_s, o_first, i_q, LAYOUT: gl.constexpr):
    """-inf for the scores of keys that a query does not see; `tile.hide`, transposed."""
    o_q = gl.arange(0, b_s.shape[1], gl.SliceLayout(0, LAYOUT))
    o_lane = o_q & 6
    o_limit = (o_first - i_q * b_s.shape[1])[:, None] - o_lane[None, :]
    return where_at_most(b_s, o_limit, (o_q - o_lane)[None, :])
