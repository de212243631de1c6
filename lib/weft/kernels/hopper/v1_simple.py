"""FlashAttention on Hopper, version 1: TMA copies and WGMMA products, all warps alike.

Eight warps, two warpgroups of 64 rows each, go through the same loop. One of their threads starts
the copies of tiles ahead of time, and the products read them where they land. What is missing:
while the warps compute exponentials the tensor cores have nothing to do.
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
from weft.kernels.hopper.ring import ready, ring, stage_of
from weft.kernels.hopper.tile import (  # fmt: skip
    SIZES,
    Lengths,
    as_column,
    begin,
    last_visible,
    mask,
    normalize,
    softmax,
    work_item,
)


@jit(do_not_specialize=SIZES)
def simple(
    q_desc, k_desc, v_desc, o_desc, p_lse, T, S, H, R, p_work, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """One tile of queries of one head: O and its log-sum-exp.

    Load Q and the last STAGES tiles of K and V. For each tile of keys, from the right:
        S = Q K^T; P = exp2(scale S - max); O = shrink O + P V; meet; load the tile STAGES ahead.
    O / sum leaves through the buffer where Q lay.

    Barriers. q_full: phase 0 ends when Q is there. full of the rings of K and V as in `ring`;
    their empty is not used: all warps meet behind the products that read a stage.
    """
    ROWS: gl.constexpr = q_desc.block_type.shape[1]
    K: gl.constexpr = q_desc.block_type.shape[3]
    TILE_K: gl.constexpr = k_desc.block_type.shape[1]
    S_LAYOUT: gl.constexpr = scores(8, TILE_K)
    O_LAYOUT: gl.constexpr = scores(8, K)
    item = work_item(Lengths(T, S, H, R, p_work), 0, CAUSAL, ROWS, TILE_K)
    q_buf = gl.allocate_shared_memory(q_desc.dtype, q_desc.block_type.shape, q_desc.layout)
    q_full = barriers(1, 1)
    k_ring = ring(k_desc, STAGES, 1)
    v_ring = ring(v_desc, STAGES, 1)
    sync()
    at = [item.i_b, item.first, item.i_h, 0]
    expect(q_full.index(0), q_desc.block_type.nbytes)
    tma_load(q_desc, at, q_full.index(0), q_buf)
    for i in gl.static_range(STAGES):
        load(k_desc, v_desc, k_ring, v_ring, item, i, R)

    o_last = last_visible(item.first, T, S, CAUSAL, ROWS, S_LAYOUT)
    b_o, b_max, b_sum = begin(ROWS, K, TILE_K, S_LAYOUT, O_LAYOUT)
    b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
    q = q_buf.reshape([ROWS, K])
    wait(q_full.index(0), 0)
    for i in range(item.tiles):
        k = ready(k_ring, i)
        b_s = wgmma(q, k.permute((1, 0)), b_s, use_acc=False, is_async=True)
        b_s = wgmma_wait(0, deps=(b_s,))
        i_k = item.tiles - 1 - i
        if i_k >= item.full:
            b_s = mask(b_s, o_last, i_k, S_LAYOUT)
        b_p, b_max, b_sum, b_shrink = softmax(b_s, b_max, b_sum, scale)
        b_o = b_o * as_column(b_shrink, O_LAYOUT)
        b_p = gl.convert_layout(b_p.to(v_desc.dtype), register_a(O_LAYOUT))
        v = ready(v_ring, i)
        b_o = wgmma(b_p, v, b_o, is_async=True)
        b_o = wgmma_wait(0, deps=(b_o,))
        sync()
        load(k_desc, v_desc, k_ring, v_ring, item, i + STAGES, R)

    b_o, b_lse = normalize(b_o, b_max, b_sum, O_LAYOUT)
    o_q = item.first + gl.arange(0, ROWS, gl.SliceLayout(1, O_LAYOUT))
    gl.store(p_lse + (item.i_b * H + item.i_h) * T + o_q, b_lse, mask=o_q < T)
    q.store(b_o.to(o_desc.dtype))
    fence()
    tma_store(o_desc, at, q_buf)
    tma_store_wait(0)


@jit
def load(k_desc, v_desc, k_ring, v_ring, item, i, R):
    """Start to copy the i-th tile of keys and values from the right, if any."""
    TILE_K: gl.constexpr = k_desc.block_type.shape[1]
    stage = stage_of(k_ring, i)
    more = i < item.tiles
    at = [item.i_b, (item.tiles - 1 - i) * TILE_K, item.i_h // R, 0]
    k_full = k_ring.full.index(stage)
    v_full = v_ring.full.index(stage)
    expect(k_full, k_desc.block_type.nbytes, pred=more)
    tma_load(k_desc, at, k_full, k_ring.buf.index(stage), pred=more)
    expect(v_full, v_desc.block_type.nbytes, pred=more)
    tma_load(v_desc, at, v_full, v_ring.buf.index(stage), pred=more)
