"""FlashAttention on Hopper, version 2: one warp loads, two or three warpgroups compute.

Shah et al. 2024, algorithm 1. The loading warp needs few registers and gives the rest away, so a
warpgroup can keep 64 rows of scores and of output. The kernel is persistent: one block to a
multiprocessor, which takes one piece of work after the other, and the loader starts the next
piece's first keys and values while the last piece's O is written.

Rings of shared memory (`ring`), and who arrives at their barriers:

    barrier      arrivals of a phase                     who waits, before
    q.full[w]    the loader; the bytes of Q              warpgroup w, its first product
    q.empty[w]   warpgroup w, once O has left            the loader, the next Q of w
    k.full[s]    the loader; the bytes of a tile         every warpgroup, a product with it
    k.empty[s]   every warpgroup, behind that product    the loader, the next tile of the stage
    v.full[s], v.empty[s]                                likewise

Q is a ring with a stage for each warpgroup, which the n-th piece of work fills in round n.
"""

from typing import NamedTuple

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
from weft.kernels.hopper.ring import Ring, fill, ready, release, ring, tile
from weft.kernels.hopper.tile import (  # fmt: skip
    SIZES,
    Lengths,
    WorkItem,
    as_column,
    begin,
    last_visible,
    mask,
    normalize,
    softmax,
    work_count,
    work_item,
)


class ForwardShared(NamedTuple):
    """What the warps of a forward block share; `turns` are `v3_pingpong`'s."""

    q: Ring
    k: Ring
    v: Ring
    turns: gl.shared_memory_descriptor


class Output(NamedTuple):
    """Where O and its log-sum-exp go, and the scale of the scores, log2(e) included."""

    desc: gl.tensor
    p_lse: gl.tensor
    scale: gl.tensor


@jit(do_not_specialize=SIZES)
def forward(
    q_desc, k_desc, v_desc, o_desc, p_lse, T, S, H, R, p_work, scale,
    CONSUMER: gl.constexpr, CAUSAL: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr,
):  # fmt: skip
    """O and its log-sum-exp, by 2 or 3 warpgroups (a version's CONSUMER) and a warp that loads.

    Registers are given out per thread: of 65,536, two warpgroups take 240 each and three 160.
    """
    q = ring(q_desc, GROUPS, 1)
    k = ring(k_desc, STAGES, GROUPS)
    v = ring(v_desc, STAGES, GROUPS)
    shared = ForwardShared(q, k, v, barriers(GROUPS, 1))
    lengths = Lengths(T, S, H, R, p_work)
    out = Output(o_desc, p_lse, scale)
    descs = (q_desc, k_desc, v_desc)
    if GROUPS == 2:
        workers(
            [
                (warpgroup, (CONSUMER, out, shared, lengths, CAUSAL, 0)),
                (warpgroup, (CONSUMER, out, shared, lengths, CAUSAL, 1)),
                (producer, (descs, shared, lengths, CAUSAL)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        workers(
            [
                (warpgroup, (CONSUMER, out, shared, lengths, CAUSAL, 0)),
                (warpgroup, (CONSUMER, out, shared, lengths, CAUSAL, 1)),
                (warpgroup, (CONSUMER, out, shared, lengths, CAUSAL, 2)),
                (producer, (descs, shared, lengths, CAUSAL)),
            ],
            [4, 4, 1],
            [160, 160, 32],
        )


@jit
def warpgroup(
    CONSUMER: gl.constexpr, out, shared, lengths, CAUSAL: gl.constexpr, W: gl.constexpr
):  # fmt: skip
    """Warpgroup W of a version."""
    CONSUMER(out, shared, lengths, CAUSAL, W)


@jit
def producer(descs, shared, lengths, CAUSAL: gl.constexpr):
    """The loader: of each piece of work the first K and V, then Q, then the rest.

    The stages of K and V are empty before the last piece's O has left through Q's
    place, so whoever asks for Q first makes the next keys wait for nothing.
    """
    q_desc, k_desc, v_desc = descs
    q, k, v, turns = shared
    GROUPS: gl.constexpr = q.buf.shape[0]
    ROWS: gl.constexpr = q.buf.shape[2]
    TILE_K: gl.constexpr = k.buf.shape[2]
    count = 0  # tiles of keys so far
    for n in range(work_count(lengths.p_work)):
        item = work_item(lengths, n, CAUSAL, GROUPS * ROWS, TILE_K)
        load_keys(k_desc, v_desc, k, v, item, item.tiles - 1, lengths.R, count)
        count += 1
        load_queries(q_desc, q, item, n)
        for i_k in range(item.tiles - 2, -1, -1):
            load_keys(k_desc, v_desc, k, v, item, i_k, lengths.R, count)
            count += 1


@jit
def load_keys(k_desc, v_desc, k, v, item, i_k, R, count):
    """Tile i_k of the keys and values of a piece of work, the count-th of the rings."""
    TILE_K: gl.constexpr = k.buf.shape[2]
    at = [item.i_b, i_k * TILE_K, item.i_h // R, 0]
    fill(k, k_desc, at, count)
    fill(v, v_desc, at, count)


@jit
def load_queries(q_desc, q, item, n):
    """Each warpgroup's rows of Q for the n-th piece of work, as soon as its last O has left."""
    GROUPS: gl.constexpr = q.buf.shape[0]
    ROWS: gl.constexpr = q.buf.shape[2]
    for w in gl.static_range(GROUPS):
        at = [item.i_b, item.first + w * ROWS, item.i_h, 0]
        wait(q.empty.index(w), (n & 1) ^ 1)
        expect(q.full.index(w), q_desc.block_type.nbytes)
        tma_load(q_desc, at, q.full.index(w), q.buf.index(w))


@jit
def consumer(out, shared, lengths, CAUSAL: gl.constexpr, W: gl.constexpr):
    """Warpgroup W, in the order of the formula, waiting for each product.

    For each piece of work, for each tile of keys from the right:
        S = Q K^T, wait, release K; mask; P, max, sum = softmax(S); O = shrink O;
        O += P V, wait, release V.
    O / sum goes out, and Q's place is empty again.
    """
    q, k, v, turns = shared
    ROWS: gl.constexpr = q.buf.shape[2]
    TILE_K: gl.constexpr = k.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K)
    O_LAYOUT: gl.constexpr = scores(4, q.buf.shape[4])
    count = 0
    for n in range(work_count(lengths.p_work)):
        begun = begin_item(q, k, lengths, n, CAUSAL, 16, W)
        item, b_o, b_max, b_sum, o_last = begun
        b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
        wait(q.full.index(W), n & 1)
        for j in range(item.tiles):
            b_k = ready(k, count)
            b_kt = b_k.permute((1, 0))
            b_s = wgmma(tile(q, W), b_kt, b_s, use_acc=False, is_async=True)
            b_s = wgmma_wait(0, deps=(b_s,))
            release(k, count)
            if item.tiles - 1 - j >= item.full:
                b_s = mask(b_s, o_last, item.tiles - 1 - j, S_LAYOUT)
            b_p, b_max, b_sum, b_shrink = softmax(b_s, b_max, b_sum, out.scale)
            b_o = b_o * as_column(b_shrink, O_LAYOUT)
            b_p = gl.convert_layout(b_p.to(v.buf.dtype), register_a(O_LAYOUT))
            b_v = ready(v, count)
            b_o = wgmma(b_p, b_v, b_o, is_async=True)
            b_o = wgmma_wait(0, deps=(b_o,))
            release(v, count)
            count += 1
        write(out, q.buf, b_o, b_max, b_sum, item, lengths, O_LAYOUT, W)
        arrive(q.empty.index(W))


@jit
def begin_item(
    q, k, lengths, n, CAUSAL: gl.constexpr, BITS: gl.constexpr, W: gl.constexpr
):  # fmt: skip
    """Warpgroup W's part of the n-th piece of work, and its running output, maximum and sum.

    The item is its own 64 rows; the tiles of keys are those of the whole block.
    """
    GROUPS: gl.constexpr = q.buf.shape[0]
    ROWS: gl.constexpr = q.buf.shape[2]
    K: gl.constexpr = q.buf.shape[4]
    TILE_K: gl.constexpr = k.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K, BITS)
    O_LAYOUT: gl.constexpr = scores(4, K, BITS)
    item = work_item(lengths, n, CAUSAL, GROUPS * ROWS, TILE_K)
    first = item.first + W * ROWS
    o_last = last_visible(first, lengths.T, lengths.S, CAUSAL, ROWS, S_LAYOUT)
    b_o, b_max, b_sum = begin(ROWS, K, TILE_K, S_LAYOUT, O_LAYOUT)
    item = WorkItem(item.i_b, item.i_h, first, item.tiles, item.full)
    return item, b_o, b_max, b_sum, o_last


@jit
def write(
    out, buf, b_o, b_max, b_sum, item, lengths, O_LAYOUT: gl.constexpr, W: gl.constexpr
):  # fmt: skip
    """Rows of O and their log-sum-exp; O by TMA from buf[W], which nobody reads any more.

    The fence stands between what the threads have stored and the copy engine that reads it.
    """
    b_o, b_lse = normalize(b_o, b_max, b_sum, O_LAYOUT)
    o_q = item.first + gl.arange(0, b_o.shape[0], gl.SliceLayout(1, O_LAYOUT))
    p_lse = out.p_lse + (item.i_b * lengths.H + item.i_h) * lengths.T
    gl.store(p_lse + o_q, b_lse, mask=o_q < lengths.T)
    buf.index(W).reshape([b_o.shape[0], b_o.shape[1]]).store(b_o.to(out.desc.dtype))
    fence()
    tma_store(out.desc, [item.i_b, item.first, item.i_h, 0], buf.index(W))
    tma_store_wait(0)
