"""The gradients of K and V at width 256, where one warpgroup has registers for one of them.

64 rows of dK and dV in fp32 would take 256 registers of each thread, and it has 240. So both
warpgroups have the same 64 keys: one makes dV, the other dK, and both make the scores. That is
five products where `dkdv` needs four.

Barriers: those of `dkdv`, but for one pair of tiles: loaded[0] is waited for by both
warpgroups, and made[0] takes an arrival from each. dK is put where V lay, which only its own
warpgroup reads, and dV has a place to itself. Q's ring must have two stages: whoever makes dK waits
for a tile before it releases the last.
"""

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    barriers,
    fence,
    gl,
    jit,
    register_a,
    scores,
    wait,
    wgmma,
    wgmma_wait,
    workers,
)
from weft.kernels.hopper.dkdv import KeyShared, first_queries, key_item, mask_keys, producer
from weft.kernels.hopper.ring import buffer, ready, release, row_ring, rows_of, tile, wait_full
from weft.kernels.hopper.tile import SIZES, Lengths


@jit(do_not_specialize=SIZES)
def dkdv_wide(
    q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc,
    T, S, H, R, p_work, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dK and dV of 64 keys, each by its own warpgroup, and a warp that loads for both."""
    k_buf = buffer(k_desc, 1)
    v_buf = buffer(v_desc, 1)
    q = row_ring(q_desc, shift_desc, STAGES, 2)
    do = row_ring(do_desc, delta_desc, STAGES, 2)
    dv_buf = buffer(dv_desc, 1)
    shared = KeyShared(k_buf, v_buf, q, do, v_buf, dv_buf, barriers(1, 1), barriers(1, 2))
    lengths = Lengths(T, S, H, R, p_work)
    descs = (q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc)
    workers(
        [
            (consumer, (True, scale, shared, lengths, CAUSAL)),
            (consumer, (False, scale, shared, lengths, CAUSAL)),
            (producer, (descs, shared, lengths, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )


@jit
def consumer(MAKES_DK: gl.constexpr, scale, shared, lengths, CAUSAL: gl.constexpr):
    """One warpgroup: dK if MAKES_DK, else dV."""
    KEYS: gl.constexpr = shared.k_buf.shape[2]
    K: gl.constexpr = shared.k_buf.shape[4]
    TILE_Q: gl.constexpr = shared.q.buf.shape[2]
    O_LAYOUT: gl.constexpr = scores(4, K)
    k = shared.k_buf.index(0).reshape([KEYS, K])
    v = shared.v_buf.index(0).reshape([KEYS, K])
    item = key_item(lengths, CAUSAL, KEYS, TILE_Q)
    full, o_first = first_queries(item.first, item, lengths, CAUSAL, KEYS, TILE_Q)
    b_sum = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    wait(shared.loaded.index(0), 0)
    if MAKES_DK:
        wait_full(shared.q, 0)
    last = lengths.R * (item.end - item.begin) - 1
    count = 0
    for _i_h in range(lengths.R):
        for i_q in range(item.begin, item.end):
            if MAKES_DK:
                b_sum = step_dk(
                    b_sum, o_first, k, v, shared.q, shared.do, count, i_q, full, scale, last
                )  # fmt: skip
            else:
                b_sum = step_dv(
                    b_sum, o_first, k, shared.q, shared.do, count, i_q, full, scale
                )  # fmt: skip
            count += 1
    if MAKES_DK:
        v.store((b_sum * (scale * 0.6931471805599453)).to(v.dtype))  # scale had log2(e) in it
    else:
        shared.dv_buf.index(0).reshape([KEYS, K]).store(b_sum.to(v.dtype))
    fence()
    arrive(shared.made.index(0))


@jit
def step_dv(b_dv, o_first, k, q_ring, do_ring, count, i_q, full, scale):
    """One tile of queries: P^T = exp2(scale K Q^T + shift); dV += P^T dO."""
    KEYS: gl.constexpr = k.shape[0]
    TILE_Q: gl.constexpr = q_ring.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    O_LAYOUT: gl.constexpr = scores(4, k.shape[1])
    b_s = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    q = ready(q_ring, count)
    b_s = wgmma(k, q.permute((1, 0)), b_s, use_acc=False, is_async=True)
    b_s = wgmma_wait(0, deps=(b_s,))
    if i_q < full:
        b_s = mask_keys(b_s, o_first, i_q, S_LAYOUT)
    b_p = gl.exp2(b_s * scale + rows_of(q_ring, count, S_LAYOUT)[None, :])
    b_a = gl.convert_layout(b_p.to(q.dtype), register_a(O_LAYOUT))
    fence()
    release(q_ring, count)
    do = ready(do_ring, count)
    b_dv = wgmma(b_a, do, b_dv, is_async=True)
    b_dv = wgmma_wait(0, deps=(b_dv,))
    release(do_ring, count)
    return b_dv


@jit
def step_dk(b_dk, o_first, k, v, q_ring, do_ring, count, i_q, full, scale, last):
    """One tile of queries, whose Q has been waited for: P^T once more, dS^T, dK += dS^T Q."""
    KEYS: gl.constexpr = k.shape[0]
    TILE_Q: gl.constexpr = q_ring.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    O_LAYOUT: gl.constexpr = scores(4, k.shape[1])
    b_s = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    q = tile(q_ring, count)
    b_s = wgmma(k, q.permute((1, 0)), b_s, use_acc=False, is_async=True)
    do = ready(do_ring, count)
    b_dp = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    b_dp = wgmma(v, do.permute((1, 0)), b_dp, use_acc=False, is_async=True)
    b_s = wgmma_wait(1, deps=(b_s,))
    if i_q < full:
        b_s = mask_keys(b_s, o_first, i_q, S_LAYOUT)
    b_p = gl.exp2(b_s * scale + rows_of(q_ring, count, S_LAYOUT)[None, :])
    # The next tile's wait stands here because it is a branch, across which the assembler does not
    # move the wait for dP up: it would come before the exponentials.
    wait_full(q_ring, count + 1, count < last)
    b_dp = wgmma_wait(0, deps=(b_dp,))
    b_ds = b_p * (b_dp - rows_of(do_ring, count, S_LAYOUT)[None, :])
    b_ds = gl.convert_layout(b_ds.to(q.dtype), register_a(O_LAYOUT))
    fence()
    release(do_ring, count)
    b_dk = wgmma(b_ds, q, b_dk, is_async=True)
    b_dk = wgmma_wait(0, deps=(b_dk,))
    release(q_ring, count)
    return b_dk
