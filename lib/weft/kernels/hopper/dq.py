"""The gradient of Q: a tile of queries stays, keys and values stream past, as in the forward pass.

dQ = scale * dS K, where dS = P * (dP - delta), P is made again from Q, K and the log-sum-exp, and
dP = dO V^T. Every row of dQ is one warpgroup's, summed in one order: the same bits every time.

Barriers: those of `v2_specialized`, where "Q" is now Q and dO, which arrive together. No turns.
A ring must have two stages: a tile of keys is waited for before the last one is released.
"""

from typing import NamedTuple

from weft.kernels.gluon import (  # fmt: skip
    arrive,
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
from weft.kernels.hopper.ring import (  # fmt: skip
    Ring,
    buffer,
    ready,
    release,
    ring,
    tile,
    wait_full,
)
from weft.kernels.hopper.tile import (  # fmt: skip
    SIZES,
    Lengths,
    last_visible,
    mask,
    padded,
    work_count,
    work_item,
)
from weft.kernels.hopper.v2_specialized import load_keys


class DqShared(NamedTuple):
    """What the warps of a block share: do_buf[w] fills with q's stage w."""

    q: Ring
    do_buf: gl.shared_memory_descriptor
    k: Ring
    v: Ring


class RowInputs(NamedTuple):
    """What is known of each row, [B, H, padded(T)], where dQ goes, and the scale of the scores."""

    p_shift: gl.tensor
    p_delta: gl.tensor
    dq_desc: gl.tensor
    scale: gl.tensor


@jit(do_not_specialize=SIZES)
def dq(
    q_desc, k_desc, v_desc, do_desc, dq_desc, p_shift, p_delta,
    T, S, H, R, p_work, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dQ, by two warpgroups of 64 rows and a warp that loads for them.

    At width 256 Q, dO, K and V come in four boxes each, for which a loader of 24 registers has
    no room; the warpgroups can spare them there, because the tiles of keys are narrow.
    """
    LOADER: gl.constexpr = 40 if q_desc.block_type.shape[3] == 256 else 24
    q = ring(q_desc, 2, 1)
    k = ring(k_desc, STAGES, 2)
    v = ring(v_desc, STAGES, 2)
    shared = DqShared(q, buffer(do_desc, 2), k, v)
    lengths = Lengths(T, S, H, R, p_work)
    rows = RowInputs(p_shift, p_delta, dq_desc, scale)
    descs = (q_desc, k_desc, v_desc, do_desc)
    workers(
        [
            (consumer, (rows, shared, lengths, CAUSAL, 0)),
            (consumer, (rows, shared, lengths, CAUSAL, 1)),
            (producer, (descs, shared, lengths, CAUSAL)),
        ],
        [4, 1],
        [252 - LOADER // 2, LOADER],
    )


@jit
def producer(descs, shared, lengths, CAUSAL: gl.constexpr):
    """The loader: of each piece of work the first K and V, then Q and dO, then the other tiles."""
    q_desc, k_desc, v_desc, do_desc = descs
    q, do_buf, k, v = shared
    ROWS: gl.constexpr = q.buf.shape[2]
    TILE_K: gl.constexpr = k.buf.shape[2]
    count = 0
    for n in range(work_count(lengths.p_work)):
        item = work_item(lengths, n, CAUSAL, 2 * ROWS, TILE_K)
        load_keys(k_desc, v_desc, k, v, item, item.tiles - 1, lengths.R, count)
        count += 1
        load_queries(q_desc, do_desc, q, do_buf, item, n)
        for i_k in range(item.tiles - 2, -1, -1):
            load_keys(k_desc, v_desc, k, v, item, i_k, lengths.R, count)
            count += 1


@jit
def load_queries(q_desc, do_desc, q, do_buf, item, n):
    """Each warpgroup's rows of Q and dO, as soon as its last dQ has left."""
    ROWS: gl.constexpr = q.buf.shape[2]
    for w in gl.static_range(2):
        at = [item.i_b, item.first + w * ROWS, item.i_h, 0]
        full = q.full.index(w)
        wait(q.empty.index(w), (n & 1) ^ 1)
        expect(full, 2 * q_desc.block_type.nbytes)
        tma_load(q_desc, at, full, q.buf.index(w))
        tma_load(do_desc, at, full, do_buf.index(w))


@jit
def consumer(rows, shared, lengths, CAUSAL: gl.constexpr, W: gl.constexpr):
    """Warpgroup W: its 64 rows of dQ over all tiles of keys, the masked ones first."""
    q, do_buf, k, v = shared
    T, S, H, R, p_work = lengths
    ROWS: gl.constexpr = q.buf.shape[2]
    K: gl.constexpr = q.buf.shape[4]
    TILE_K: gl.constexpr = k.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K)
    O_LAYOUT: gl.constexpr = scores(4, K)
    count = 0
    for n in range(work_count(p_work)):
        item = work_item(lengths, n, CAUSAL, 2 * ROWS, TILE_K)
        first = item.first + W * ROWS
        o_last = last_visible(first, T, S, CAUSAL, ROWS, S_LAYOUT)
        o_row = first + gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))
        o_row = (item.i_b * H + item.i_h) * padded(T) + o_row
        b_shift = gl.load(rows.p_shift + o_row)
        b_delta = gl.load(rows.p_delta + o_row)
        b_dq = gl.zeros([ROWS, K], gl.float32, O_LAYOUT)
        wait(q.full.index(W), n & 1)
        wait_full(k, count)
        for i_k in range(item.tiles - 1, item.full - 1, -1):
            b_dq = step(
                b_dq, b_shift, b_delta, o_last, shared, count, i_k, rows.scale, True, W
            )  # fmt: skip
            count += 1
        for i_k in range(gl.minimum(item.tiles, item.full) - 1, -1, -1):
            b_dq = step(
                b_dq, b_shift, b_delta, o_last, shared, count, i_k, rows.scale, False, W
            )  # fmt: skip
            count += 1
        b_dq = b_dq * (rows.scale * 0.6931471805599453)  # scale had log2(e) in it
        tile(q, W).store(b_dq.to(q.buf.dtype))
        fence()
        tma_store(rows.dq_desc, [item.i_b, first, item.i_h, 0], q.buf.index(W))
        tma_store_wait(0)
        arrive(q.empty.index(W))


@jit
def step(
    b_dq, b_shift, b_delta, o_last, shared, count, i_k, scale,
    MASKED: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """One tile of keys, which has been waited for: S, dP under the exponentials, dS, dQ."""
    q, do_buf, k, v = shared
    ROWS: gl.constexpr = q.buf.shape[2]
    K: gl.constexpr = q.buf.shape[4]
    TILE_K: gl.constexpr = k.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K)
    O_LAYOUT: gl.constexpr = scores(4, K)
    b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
    b_k = tile(k, count)
    b_s = wgmma(tile(q, W), b_k.permute((1, 0)), b_s, use_acc=False, is_async=True)
    b_v = ready(v, count)
    b_do = do_buf.index(W).reshape([ROWS, K])
    b_dp = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
    b_dp = wgmma(b_do, b_v.permute((1, 0)), b_dp, use_acc=False, is_async=True)
    b_s = wgmma_wait(1, deps=(b_s,))
    if MASKED:
        b_s = mask(b_s, o_last, i_k, S_LAYOUT)
    b_p = gl.exp2(b_s * scale + b_shift[:, None])
    # The next tile's wait stands here because it is a branch, across which the assembler does not
    # move the wait for dP up: it would come before the exponentials.
    wait_full(k, count + 1, i_k > 0)
    b_dp = wgmma_wait(0, deps=(b_dp,))
    release(v, count)
    b_ds = b_p * (b_dp - b_delta[:, None])
    b_ds = gl.convert_layout(b_ds.to(k.buf.dtype), register_a(O_LAYOUT))
    b_dq = wgmma(b_ds, b_k, b_dq, is_async=True)
    b_dq = wgmma_wait(0, deps=(b_dq,))
    release(k, count)
    return b_dq
