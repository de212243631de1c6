"""FlashAttention on Hopper, version 1: bulk copies and warpgroup products, all warps alike.

Eight warps, two warpgroups of 64 rows each, go through the same loop. One of their threads asks
for tiles ahead of time, and the products read them where they land. What is missing: while the
warps compute exponentials the tensor cores have nothing to do.
"""

from weft.kernels.gluon import (  # fmt: skip
    barriers,
    expect,
    fence,
    gl,
    jit,
    register_a,
    scores,
    sync,
    tma_load,
    tma_store,
    tma_store_wait,
    wait,
    wgmma,
    wgmma_wait,
)
from weft.kernels.hopper.tile import (  # fmt: skip
    SIZES,
    column,
    finish,
    hide,
    last_seen,
    place,
    softmax,
    span,
)


@jit(do_not_specialize=SIZES)
def simple(
    q_desc, k_desc, v_desc, o_desc, p_lse, T, S, lead, H, R, p_work, scale,
    CAUSAL: gl.constexpr, TILE_K: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """One tile of queries of one head: O and its log-sum-exp.

    Barriers. q_full: phase 0 ends when Q is there. k_full[s], v_full[s]: phase r ends when the
    r-th tile that stage s takes in is there. Nobody says that a stage is free: all warps meet
    behind the products that read it, and then it is.
    """
    ROWS: gl.constexpr = q_desc.block_type.shape[1]
    K: gl.constexpr = q_desc.block_type.shape[3]
    S_LAYOUT: gl.constexpr = scores(8, TILE_K)
    O_LAYOUT: gl.constexpr = scores(8, K)
    i_b, i_h, i_q = place(p_work, 0, T, H, ROWS)
    i_g = i_h // R
    first = i_q * ROWS
    tiles, full = span(first, S, lead, CAUSAL, ROWS, TILE_K)
    q_buf = gl.allocate_shared_memory(q_desc.dtype, q_desc.block_type.shape, q_desc.layout)
    kv: gl.constexpr = [STAGES] + k_desc.block_type.shape
    k_buf = gl.allocate_shared_memory(k_desc.dtype, kv, k_desc.layout)
    v_buf = gl.allocate_shared_memory(v_desc.dtype, kv, v_desc.layout)
    q_full = barriers(1, 1)
    k_full = barriers(STAGES, 1)
    v_full = barriers(STAGES, 1)
    sync()
    expect(q_full.index(0), q_desc.block_type.nbytes)
    tma_load(q_desc, [i_b, first, i_h, 0], q_full.index(0), q_buf)
    for i in gl.static_range(STAGES):
        load(k_desc, v_desc, k_full, v_full, k_buf, v_buf, i, i_b, i_g, tiles, TILE_K, STAGES)

    o_last = last_seen(first, S, lead, CAUSAL, ROWS, S_LAYOUT)
    b_o = gl.zeros([ROWS, K], gl.float32, O_LAYOUT)
    b_top = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, S_LAYOUT))
    b_sum = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, S_LAYOUT))
    b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
    q = q_buf.reshape([ROWS, K])
    wait(q_full.index(0), 0)
    for i in range(tiles):
        stage = i % STAGES
        wait(k_full.index(stage), i // STAGES & 1)
        k = k_buf.index(stage).reshape([TILE_K, K])
        b_s = wgmma(q, k.permute((1, 0)), b_s, use_acc=False, is_async=True)
        b_s = wgmma_wait(0, deps=(b_s,))
        i_k = tiles - 1 - i
        if i_k >= full:
            b_s = hide(b_s, o_last, i_k, S_LAYOUT)
        b_p, b_top, b_sum, b_shrink = softmax(b_s, b_top, b_sum, scale)
        b_o = b_o * column(b_shrink, O_LAYOUT)
        b_p = gl.convert_layout(b_p.to(v_desc.dtype), register_a(O_LAYOUT))
        wait(v_full.index(stage), i // STAGES & 1)
        v = v_buf.index(stage).reshape([TILE_K, K])
        b_o = wgmma(b_p, v, b_o, is_async=True)
        b_o = wgmma_wait(0, deps=(b_o,))
        sync()
        load(
            k_desc, v_desc, k_full, v_full, k_buf, v_buf, i + STAGES, i_b, i_g, tiles,
            TILE_K, STAGES,
        )  # fmt: skip

    b_top = gl.convert_layout(b_top, gl.SliceLayout(1, O_LAYOUT))
    b_sum = gl.convert_layout(b_sum, gl.SliceLayout(1, O_LAYOUT))
    b_o, b_lse = finish(b_o, b_top, b_sum)
    o_q = first + gl.arange(0, ROWS, gl.SliceLayout(1, O_LAYOUT))
    gl.store(p_lse + (i_b * H + i_h) * T + o_q, b_lse, mask=o_q < T)
    q.store(b_o.to(o_desc.dtype))
    fence()
    tma_store(o_desc, [i_b, first, i_h, 0], q_buf)
    tma_store_wait(0)


@jit
def load(
    k_desc, v_desc, k_full, v_full, k_buf, v_buf, i, i_b, i_g, tiles,
    TILE_K: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Ask for the i-th tile of keys and values from the right, if there is one."""
    stage = i % STAGES
    more = i < tiles
    at = [i_b, (tiles - 1 - i) * TILE_K, i_g, 0]
    expect(k_full.index(stage), k_desc.block_type.nbytes, pred=more)
    tma_load(k_desc, at, k_full.index(stage), k_buf.index(stage), pred=more)
    expect(v_full.index(stage), v_desc.block_type.nbytes, pred=more)
    tma_load(v_desc, at, v_full.index(stage), v_buf.index(stage), pred=more)
