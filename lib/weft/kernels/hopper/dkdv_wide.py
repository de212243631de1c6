"""The gradients of K and V at width 256, where one warpgroup has registers for one of them.

64 rows of dK and dV in fp32 would take 256 registers of each thread, and it has 240. So both
warpgroups have the same 64 keys: one makes dV, the other dK, and both make the scores. That is
five products where `dkdv` needs four.

Barriers: those of `dkdv`, but for one pair of tiles: k_full[0] is waited for by both
warpgroups, and made[0] takes an arrival from each. dK is put where V lay, which only its own
warpgroup reads, and dV has a place to itself.
"""

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    barriers,
    fence,
    gl,
    here,
    jit,
    register_a,
    scores,
    wait,
    wgmma,
    wgmma_wait,
    workers,
)
from weft.kernels.hopper.dkdv import hide_keys, per_row, place_keys, produce, span
from weft.kernels.hopper.tile import SIZES
from weft.kernels.hopper.v2_specialized import filled, ready, release


@jit(do_not_specialize=SIZES)
def dkdv_wide(
    q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc,
    T, S, lead, H, R, p_work, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dK and dV of 64 keys, each by its own warpgroup, and a warp that loads for both."""
    own: gl.constexpr = [1] + k_desc.block_type.shape
    ring: gl.constexpr = [STAGES] + q_desc.block_type.shape
    k_buf = gl.allocate_shared_memory(k_desc.dtype, own, k_desc.layout)
    v_buf = gl.allocate_shared_memory(k_desc.dtype, own, k_desc.layout)
    dv_buf = gl.allocate_shared_memory(k_desc.dtype, own, k_desc.layout)
    q_buf = gl.allocate_shared_memory(q_desc.dtype, ring, q_desc.layout)
    do_buf = gl.allocate_shared_memory(q_desc.dtype, ring, q_desc.layout)
    per_row: gl.constexpr = [STAGES] + shift_desc.block_type.shape
    shift_buf = gl.allocate_shared_memory(gl.float32, per_row, shift_desc.layout)
    delta_buf = gl.allocate_shared_memory(gl.float32, per_row, shift_desc.layout)
    bufs = (k_buf, v_buf, q_buf, do_buf, shift_buf, delta_buf, v_buf, dv_buf)
    q_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    do_bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    bars = (barriers(1, 1), q_bars, do_bars, barriers(1, 2))
    sizes = (T, S, lead, H, R, p_work)
    descs = (q_desc, k_desc, v_desc, do_desc, shift_desc, delta_desc, dk_desc, dv_desc)
    workers(
        [
            (consume, (True, scale, bufs, bars, sizes, CAUSAL, STAGES)),
            (consume, (False, scale, bufs, bars, sizes, CAUSAL, STAGES)),
            (produce, (descs, bufs, bars, sizes, CAUSAL, STAGES, 1)),
        ],
        [4, 1],
        [240, 24],
    )


@jit
def consume(
    KEYS_SIDE: gl.constexpr, scale, bufs, bars, sizes, CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """One warpgroup: dK if KEYS_SIDE, else dV."""
    k_buf, v_buf, q_buf, do_buf, shift_buf, delta_buf, dk_buf, dv_buf = bufs
    k_full, q_bars, do_bars, made = bars
    T, S, lead, H, R, p_work = sizes
    KEYS: gl.constexpr = k_buf.shape[2]
    TILE_Q: gl.constexpr = q_buf.shape[2]
    K: gl.constexpr = k_buf.shape[4]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    O_LAYOUT: gl.constexpr = scores(4, K)
    k = k_buf.index(0).reshape([KEYS, K])
    v = v_buf.index(0).reshape([KEYS, K])
    i_b, i_g, first = place_keys(p_work, S, H // R, KEYS)
    begin, tiles = span(first, T, lead, CAUSAL, TILE_Q)
    full = begin
    if CAUSAL:
        full = gl.minimum(gl.cdiv(gl.maximum(first + KEYS - 1 - lead, 0), TILE_Q), tiles)
    o_first = here(first - lead + gl.arange(0, KEYS, gl.SliceLayout(1, S_LAYOUT)))
    b_sum = gl.zeros([KEYS, K], gl.float32, O_LAYOUT)
    wait(k_full.index(0), 0)
    count = 0
    for _i_h in range(R):
        for i_q in range(begin, tiles):
            if KEYS_SIDE:
                b_sum = step_keys(
                    b_sum, o_first, k, v, q_buf, do_buf, shift_buf, delta_buf, q_bars, do_bars,
                    count, i_q, full, scale, STAGES,
                )  # fmt: skip
            else:
                b_sum = step_values(
                    b_sum, o_first, k, q_buf, do_buf, shift_buf, q_bars, do_bars,
                    count, i_q, full, scale, STAGES,
                )  # fmt: skip
            count += 1
    if KEYS_SIDE:
        v.store((b_sum * (scale * 0.6931471805599453)).to(k_buf.dtype))  # scale had log2(e) in it
    else:
        dv_buf.index(0).reshape([KEYS, K]).store(b_sum.to(k_buf.dtype))
    fence()
    arrive(made.index(0))


@jit
def step_values(
    b_dv, o_first, k, q_buf, do_buf, shift_buf, q_bars, do_bars,
    count, i_q, full, scale, STAGES: gl.constexpr,
):  # fmt: skip
    """One tile of queries: the weights once more, and dV."""
    KEYS: gl.constexpr = k.shape[0]
    TILE_Q: gl.constexpr = q_buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_Q)
    O_LAYOUT: gl.constexpr = scores(4, q_buf.shape[4])
    b_s = gl.zeros([KEYS, TILE_Q], gl.float32, S_LAYOUT)
    q = ready(q_bars, q_buf, count, STAGES)
    b_s = wgmma(k, q.permute((1, 0)), b_s, use_acc=False, is_async=True)
    b_s = wgmma_wait(0, deps=(b_s,))
    if i_q < full:
        b_s = hide_keys(b_s, o_first, i_q, S_LAYOUT)
    b_p = gl.exp2(b_s * scale + per_row(shift_buf, count, STAGES, S_LAYOUT)[None, :])
    b_w = gl.convert_layout(b_p.to(q_buf.dtype), register_a(O_LAYOUT))
    fence()
    release(q_bars, count, STAGES)
    do = ready(do_bars, do_buf, count, STAGES)
    b_dv = wgmma(b_w, do, b_dv, is_async=True)
    b_dv = wgmma_wait(0, deps=(b_dv,))
    release(do_bars, count, STAGES)
    return b_dv


@jit
def step_keys(
    b_dk, o_first, k, v, q_buf, do_buf, shift_buf, delta_buf, q_bars, do_bars,
    count, i_q, full, scale, STAGES: gl.constexpr,
):  # fmt: skip
    """One tile of queries: the weights once more, dS, and dK."""
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
    b_p = gl.exp2(b_s * scale + per_row(shift_buf, count, STAGES, S_LAYOUT)[None, :])
    filled(do_bars, count, STAGES)  # it is; a branch, across which no wait for products moves up
    b_dp = wgmma_wait(0, deps=(b_dp,))
    b_ds = b_p * (b_dp - per_row(delta_buf, count, STAGES, S_LAYOUT)[None, :])
    b_ds = gl.convert_layout(b_ds.to(q_buf.dtype), register_a(O_LAYOUT))
    fence()
    release(do_bars, count, STAGES)
    b_dk = wgmma(b_ds, q, b_dk, is_async=True)
    b_dk = wgmma_wait(0, deps=(b_dk,))
    release(q_bars, count, STAGES)
    return b_dk
