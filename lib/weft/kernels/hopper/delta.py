"""What the backward pass needs of each row before it starts: a sum, and where its softmax stood.

dS = P * (dP - delta), where delta is the row's sum of dO * O: Dao et al. 2022, appendix B.2. The
log-sum-exp comes along as a shift, negative and in units of log 2, ready to be added to a score,
and as -inf where a row has seen nothing or does not exist: exp2 is 0 there, and nobody need ask.
"""

from weft.kernels.gluon import barriers, expect, gl, gluon, jit, sync, tma_load, wait
from weft.kernels.hopper.tile import SIZES, padded


@gluon.constexpr_function
def rows_layout(K):
    """Eight neighbours of a row to a thread, a row to as many threads as that takes."""
    return gl.BlockedLayout([1, 8], [256 // K, K // 8], [4, 1], [1, 0])


@jit(do_not_specialize=SIZES)
def delta(o_desc, do_desc, p_lse, p_shift, p_delta, T):
    """One tile of rows of one head. p_lse is [B, H, T]; what is made is [B, H, padded(T)]."""
    ROWS: gl.constexpr = o_desc.block_type.shape[1]
    K: gl.constexpr = o_desc.block_type.shape[3]
    LAYOUT: gl.constexpr = rows_layout(K)
    H = o_desc.shape[2]
    i_q = gl.program_id(0) % (padded(T) // ROWS)
    i_bh = gl.program_id(0) // (padded(T) // ROWS)
    o_buf = gl.allocate_shared_memory(o_desc.dtype, o_desc.block_type.shape, o_desc.layout)
    do_buf = gl.allocate_shared_memory(do_desc.dtype, do_desc.block_type.shape, do_desc.layout)
    full = barriers(1, 1)
    sync()
    expect(full.index(0), o_desc.block_type.nbytes + do_desc.block_type.nbytes)
    tma_load(o_desc, [i_bh // H, i_q * ROWS, i_bh % H, 0], full.index(0), o_buf)
    tma_load(do_desc, [i_bh // H, i_q * ROWS, i_bh % H, 0], full.index(0), do_buf)
    o_q = i_q * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    b_lse = gl.load(p_lse + i_bh * T + o_q, mask=o_q < T, other=float("-inf"))
    b_shift = gl.where(b_lse == float("-inf"), b_lse, b_lse * -1.4426950408889634)  # log2(e)
    gl.store(p_shift + i_bh * padded(T) + o_q, b_shift)
    wait(full.index(0), 0)
    b_o = o_buf.reshape([ROWS, K]).load(LAYOUT).to(gl.float32)
    b_do = do_buf.reshape([ROWS, K]).load(LAYOUT).to(gl.float32)
    gl.store(p_delta + i_bh * padded(T) + o_q, gl.sum(b_o * b_do, 1))
