"""The gradients of K and V: a tile of keys stays, queries and their dO stream past.

dV = P^T dO and dK = scale * dS^T Q. Scores are made transposed, keys down and queries across, for
then P^T and dS^T come out of the products where the next products want their A operands: in
registers. With grouped heads a key sees the queries of all heads that share it, one after the
other. Every row of dK and dV is one warpgroup's, summed in one order: the same bits every time.

A block has one piece of work and is gone, which leaves registers to the sums.

Barriers: as in `v2_specialized`, with the roles exchanged. loaded[w]: warpgroup w's keys and
values, which arrive together, once. q, do: rings. made[w]: warpgroup w has put dK and dV where
its K and V lay, and the loader sends them off.
"""

from typing import NamedTuple

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    barriers,
    expect,
    fence,
    gl,
    jit,
    opaque,
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
from weft.kernels.hopper.ring import (  # fmt: skip
    RowRing,
    buffer,
    fill_with_rows,
    ready,
    release,
    row_ring,
    rows_of,
)
from weft.kernels.hopper.tile import SIZES, Lengths, coordinates


class KeyShared(NamedTuple):
    """What the warps of a block share that owns keys: their K and V, and queries streaming past."""

    k_buf: gl.shared_memory_descriptor
    v_buf: gl.shared_memory_descriptor
    q: RowRing  # with each row's shift
    do: RowRing  # with each row's delta
    dk_buf: gl.shared_memory_descriptor
    dv_buf: gl.shared_memory_descriptor
    loaded: gl.shared_memory_descriptor
    made: gl.shared_memory_descriptor


class KeyItem(NamedTuple):
    """Some keys of one kv head, from `first` on, and the tiles of queries that see any of them."""

    i_b: gl.tensor
    i_g: gl.tensor
    first: gl.tensor
    begin: gl.tensor
    end: gl.tensor


@jit(do_not_specialize=SIZES)
def dkdv(
    q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc,
    T, S, H, R, p_work, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dK and dV, by two warpgroups of 64 keys and a warp that loads for them."""
    k_buf = buffer(k_desc, 2)
    v_buf = buffer(v_desc, 2)
    q = row_ring(q_desc, shift_desc, STAGES, 2)
    do = row_ring(do_desc, delta_desc, STAGES, 2)
    shared = KeyShared(k_buf, v_buf, q, do, k_buf, v_buf, barriers(2, 1), barriers(2, 1))
    lengths = Lengths(T, S, H, R, p_work)
    descs = (q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc)
    workers(
        [
            (consumer, (scale, shared, lengths, CAUSAL, 0)),
            (consumer, (scale, shared, lengths, CAUSAL, 1)),
            (producer, (descs, shared, lengths, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )


@jit
def key_item(lengths, CAUSAL: gl.constexpr, KEYS: gl.constexpr, TILE_Q: gl.constexpr):
    """This block's one piece of work: KEYS keys."""
    T, S, H, R, p_work = lengths
    i_b, i_g, i_k = coordinates(p_work, 0, S, H // R, KEYS)
    begin = 0
    if CAUSAL:
        begin = gl.maximum(i_k * KEYS - (S - T), 0) // TILE_Q
    return KeyItem(i_b, i_g, i_k * KEYS, begin, gl.cdiv(T, TILE_Q))


@jit
def producer(descs, shared, lengths, CAUSAL: gl.constexpr):
    """The loader: the block's keys and values, all queries that see them, and what was made."""
    q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc = descs
    OWN: gl.constexpr = shared.k_buf.shape[0]
    KEYS: gl.constexpr = shared.k_buf.shape[2]
    TILE_Q: gl.constexpr = shared.q.buf.shape[2]
    R = lengths.R
    item = key_item(lengths, CAUSAL, OWN * KEYS, TILE_Q)
    for w in gl.static_range(OWN):
        at = [item.i_b, item.first + w * KEYS, item.i_g, 0]
        expect(shared.loaded.index(w), 2 * k_desc.block_type.nbytes)
        tma_load(k_desc, at, shared.loaded.index(w), shared.k_buf.index(w))
        tma_load(v_desc, at, shared.loaded.index(w), shared.v_buf.index(w))
    count = 0
    for i_h in range(item.i_g * R, item.i_g * R + R):
        for i_q in range(item.begin, item.end):
            at = [item.i_b, i_q * TILE_Q, i_h, 0]
            row_at = [item.i_b * lengths.H + i_h, i_q * TILE_Q]
            fill_with_rows(shared.q, q_desc, at, shift_desc, row_at, count)
            fill_with_rows(shared.do, do_desc, at, delta_desc, row_at, count)
            count += 1
    for w in gl.static_range(OWN):
        at = [item.i_b, item.first + w * KEYS, item.i_g, 0]
        wait(shared.made.index(w), 0)
        tma_store(dk_desc, at, shared.dk_buf.index(w))
        tma_store(dv_desc, at, shared.dv_buf.index(w))
    tma_store_wait(0)


@jit
def consumer(scale, shared, lengths, CAUSAL: gl.constexpr, W: gl.constexpr):
    """Warpgroup W: its 64 rows of dK and dV over all heads and tiles of queries."""
    KEYS: gl.constexpr = shared.k_buf.shape[2]
    K: gl.constexpr = shared.k_buf.shape[4]
    TILE_Q: gl.constexpr = shared.q.buf.shape[2]
    O_LAYOUT: gl.constexpr = scores(4, K)
    k = shared.k_buf.index(W).reshape([KEYS, K])
    v = shared.v_buf.index(W).reshape([KEYS, K])
    item = key_item(lengths, CAUSAL, 2 * KEYS, TILE_Q)
    first = item.first + W * KEYS
    full, o_first = first_queries(first, item, lengths, CAUSAL, KEYS, TILE_Q)
    b_dk = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    b_dv = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    wait(shared.loaded.index(W), 0)
    count = 0
    for _i_h in range(lengths.R):
        for i_q in range(item.begin, item.end):
            b_dk, b_dv = step(
                b_dk, b_dv, o_first, k, v, shared.q, shared.do, count, i_q, full, scale
            )  # fmt: skip
            count += 1
    b_dk = b_dk * (scale * 0.6931471805599453)  # scale had log2(e) in it
    k.store(b_dk.to(k.dtype))
    v.store(b_dv.to(v.dtype))
    fence()
    arrive(shared.made.index(W))


@jit
def first_queries(
    first, item, lengths, CAUSAL: gl.constexpr, KEYS: gl.constexpr, TILE_Q: gl.constexpr
):  # fmt: skip
    """The tile from which on every query sees all KEYS keys, and each key's first query."""
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    first -= lengths.S - lengths.T
    full = item.begin
    if CAUSAL:
        full = gl.minimum(gl.cdiv(gl.maximum(first + KEYS - 1, 0), TILE_Q), item.end)
    return full, opaque(first + gl.arange(0, KEYS, gl.SliceLayout(1, S_LAYOUT)))


@jit
def step(b_dk, b_dv, o_first, k, v, q_ring, do_ring, count, i_q, full, scale):
    """One tile of queries: dP under the exponentials, dV under what makes dS.

    S^T = K Q^T; dP^T = V dO^T; P^T = exp2(scale S^T + shift); dV += P^T dO;
    dS^T = P^T (dP^T - delta); dK += dS^T Q.
    """
    KEYS: gl.constexpr = k.shape[0]
    K: gl.constexpr = k.shape[1]
    TILE_Q: gl.constexpr = q_ring.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    O_LAYOUT: gl.constexpr = scores(4, K)
    b_s = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    q = ready(q_ring, count)
    b_s = wgmma(k, q.permute((1, 0)), b_s, use_acc=False, is_async=True)
    do = ready(do_ring, count)
    b_dp = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    b_dp = wgmma(v, do.permute((1, 0)), b_dp, use_acc=False, is_async=True)
    b_s = wgmma_wait(1, deps=(b_s,))
    if i_q < full:
        b_s = mask_keys(b_s, o_first, i_q, S_LAYOUT)
    b_shift = rows_of(q_ring, count, S_LAYOUT)
    b_p = gl.exp2(b_s * scale + b_shift[None, :])
    b_a = gl.convert_layout(b_p.to(q.dtype), register_a(O_LAYOUT))
    b_dv = wgmma(b_a, do, b_dv, is_async=True)
    b_dp = wgmma_wait(1, deps=(b_dp,))
    b_ds = b_p * (b_dp - rows_of(do_ring, count, S_LAYOUT)[None, :])
    b_ds = gl.convert_layout(b_ds.to(q.dtype), register_a(O_LAYOUT))
    b_dk = wgmma(b_ds, q, b_dk, is_async=True)
    b_dk, b_dv, b_a, b_ds = wgmma_wait(0, deps=(b_dk, b_dv, b_a, b_ds))
    fence()
    release(q_ring, count)
    release(do_ring, count)
    return b_dk, b_dv


@jit
def mask_keys(b_s, o_first, i_q, LAYOUT: gl.constexpr):
    """-inf for the scores of keys that a query does not see; `tile.mask`, transposed."""
    o_q = gl.arange(0, b_s.shape[1], gl.SliceLayout(0, LAYOUT))
    o_lane = o_q & 6
    o_limit = (o_first - i_q * b_s.shape[1])[:, None] - o_lane[None, :]
    return where_at_most(b_s, o_limit, (o_q - o_lane)[None, :])
