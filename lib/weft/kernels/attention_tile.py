"""What attention kernels do with a tile: load it, see who may look, multiply what is seen."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E), and exp2 is an instruction
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def far(i, stride):
    """i * stride in 64 bits: an element of a large tensor may lie beyond 2^31."""
    return (tl.full([], 0, tl.int64) + i) * stride


@triton.jit
def load_tile(
    p_tile, o_row, stride, rows, WIDTH: tl.constexpr, PADDED: tl.constexpr, ENDS: tl.constexpr
):
    """Rows of a matrix that are `stride` elements apart; zeros right of its WIDTH.

    Where the matrix ENDS inside the tile, zeros also from row `rows` on. Nothing outside is read.
    """
    o_col = tl.arange(0, PADDED)
    p_all = p_tile + o_row[:, None] * stride + o_col[None, :]
    if ENDS and WIDTH != PADDED:
        b = tl.load(p_all, mask=(o_row[:, None] < rows) & (o_col[None, :] < WIDTH), other=0.0)
    elif ENDS:
        b = tl.load(p_all, mask=o_row[:, None] < rows, other=0.0)
    elif WIDTH != PADDED:
        b = tl.load(p_all, mask=o_col[None, :] < WIDTH, other=0.0)
    else:
        b = tl.load(p_all)
    return b


@triton.jit
def store_tile(p_tile, b, o_row, stride, rows, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Round a tile to the matrix's type and write what of it lies inside."""
    o_col = tl.arange(0, PADDED)
    m_inside = (o_row[:, None] < rows) & (o_col[None, :] < WIDTH)
    p_all = p_tile + o_row[:, None] * stride + o_col[None, :]
    tl.store(p_all, b.to(p_tile.dtype.element_ty), mask=m_inside)


@triton.jit
def seen(p_mask, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL: tl.constexpr):
    """Which queries may look at which keys: inside both lengths, not ahead, and not masked.

    `o_q` and `o_k` have one dim each of length 1, in either order; so has what comes back.
    """
    m_seen = (o_q < T) & (o_k < S)
    if CAUSAL:
        m_seen &= o_k <= o_q + (S - T)
    if p_mask is not None:
        p_all = p_mask + o_q.to(tl.int64) * stride_mt + o_k.to(tl.int64) * stride_ms
        m_seen &= tl.load(p_all, mask=m_seen, other=0) != 0
    return m_seen


@triton.jit
def odd(b):
    """Whether a tile holds NaN or an infinity."""
    m = (b != b) | (tl.abs(b) == float("inf"))
    return tl.max(tl.ravel(m.to(tl.int32)), 0) > 0


@triton.jit
def add_rows(
    b_w, b_sum, p_x, stride, rows, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    p_mask, stride_mt, stride_ms, o_q, o_k, T, S, CAUSAL: tl.constexpr, BY_QUERY: tl.constexpr,
):  # fmt: skip
    """b_sum + b_w @ x, one row of x at a time, each for those alone that see it: slow, and rare.

    What is not seen weighs 0, but 0 * NaN and 0 * inf are NaN. So a kernel that finds NaN in its
    result starts over, and multiplies in this way where there are pairs that are not seen.
    Row i of x belongs to query o_q + i if BY_QUERY, else to key o_k + i.
    """
    o_col, o_i = tl.arange(0, PADDED), tl.arange(0, b_w.shape[1])
    for i in range(b_w.shape[1]):
        m_row = (i < rows) & (o_col < WIDTH)
        b_row = tl.load(p_x + far(i, stride) + o_col, mask=m_row, other=0.0).to(tl.float32)
        b_weight = tl.sum(tl.where((o_i == i)[None, :], b_w.to(tl.float32), 0.0), 1)
        if BY_QUERY:
            m_add = seen(p_mask, stride_mt, stride_ms, o_q + i, o_k, T, S, CAUSAL)
        else:
            m_add = seen(p_mask, stride_mt, stride_ms, o_q, o_k + i, T, S, CAUSAL)
        b_sum += tl.where(m_add, b_weight[:, None] * b_row[None, :], 0.0)
    return b_sum
