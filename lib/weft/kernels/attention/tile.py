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
def place(i, tiles, H, LAST_FIRST: tl.constexpr):
    """Which tile, head and batch are number i's; the tiles of one head follow each other.

    Causal queries that look furthest back take longest, so they come first. 64 bits, because what
    these are multiplied with may pass 2^31.
    """
    i_tile = i % tiles
    if LAST_FIRST:
        i_tile = tiles - 1 - i_tile
    return i_tile.to(tl.int64), (i // tiles % H).to(tl.int64), (i // tiles // H).to(tl.int64)


@triton.jit
def keys(
    first, T, S, UNMASKED: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Where the tiles end that all rows see whole, and where those end that any row sees."""
    plain, end = S, S
    if CAUSAL:
        plain = tl.minimum(tl.maximum(first + 1 + S - T, 0), S)
        end = tl.minimum(tl.maximum(first + TILE_Q + S - T, 0), S)
    plain = plain // TILE_K * TILE_K if UNMASKED else 0
    return plain, end


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
def flaw(b):
    """For each row of a tile: 0 where all of it is finite, else NaN."""
    return tl.sum(b * 0.0, 1)
