"""What attention kernels do with a tile: load it, see which pairs count, store it.

A program of a kernel has one tile of the result. In registers a tile is a matrix with a power of
two rows and columns; where the tensor ends inside it, or its heads are narrower, the rest is
filled with zeros, and a mask keeps loads and stores off what does not exist.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E), and exp2 is an instruction
LN2 = tl.constexpr(0.6931471805599453)


class View(NamedTuple):
    """A tensor [B, T, H, ...] as a kernel takes it: its address and the strides of three dims.

    Rows, [B, T, H, K], lie in one piece each. Of numbers for each row, [B, T, H], those of a head
    lie in one piece: t is 1.
    """

    p: Any
    b: Any
    t: Any
    h: Any


class MaskView(NamedTuple):
    """A mask [B, H, T, S]: its address and all strides, 0 in dims along which it is repeated."""

    p: Any
    b: Any
    h: Any
    t: Any
    s: Any


@triton.constexpr_function
def padded(width):
    """The width of a tile in registers: a power of two, and at least what a tensor core takes."""
    return max(16, 1 << (width - 1).bit_length())


@triton.jit
def program(tiles, H, LAST_FIRST: tl.constexpr):
    """Tile, head and batch of this program, from its number; the tiles of a head are neighbours.

    Causal queries that look furthest back take longest, so they come first. 64 bits, because what
    these are multiplied with may pass 2^31.
    """
    i = tl.program_id(0)
    i_tile = i % tiles
    if LAST_FIRST:
        i_tile = tiles - 1 - i_tile
    return i_tile.to(tl.int64), (i // tiles % H).to(tl.int64), (i // tiles // H).to(tl.int64)


@triton.jit
def head(x, i_b, i_h):
    """A tensor from the first row of one head on."""
    return View(x.p + i_b * x.b + i_h * x.h, x.b, x.t, x.h)


@triton.jit
def head_mask(mask, i_b, i_h):
    """The mask of one head, None where there is no mask."""
    one = None
    if mask is not None:
        one = MaskView(mask.p + i_b * mask.b + i_h * mask.h, mask.b, mask.h, mask.t, mask.s)
    return one


@triton.jit
def row_pointer(x, first):
    """Row `first` of a head. In 64 bits: an element of a large tensor may lie beyond 2^31."""
    return x.p + (tl.full([], 0, tl.int64) + first) * x.t


@triton.jit
def load_tile(x, first, o_row, rows, WIDTH: tl.constexpr, MAY_END: tl.constexpr):
    """Rows first + o_row of a head, WIDTH columns each, and zeros where these are padded.

    Where the tensor MAY_END inside the tile, zeros also from its last row on. A load without a mask
    is a vector load that no comparison has to wait for, hence the four cases.
    """
    WIDE: tl.constexpr = padded(WIDTH)
    o_col = tl.arange(0, WIDE)
    p_tile = row_pointer(x, first) + o_row[:, None] * x.t + o_col[None, :]
    m_row, m_col = o_row[:, None] < rows - first, o_col[None, :] < WIDTH
    if MAY_END and WIDTH != WIDE:
        b = tl.load(p_tile, mask=m_row & m_col, other=0.0)
    elif MAY_END:
        b = tl.load(p_tile, mask=m_row, other=0.0)
    elif WIDTH != WIDE:
        b = tl.load(p_tile, mask=m_col, other=0.0)
    else:
        b = tl.load(p_tile)
    return b


@triton.jit
def store_tile(x, first, b, o_row, rows, WIDTH: tl.constexpr):
    """Round a tile to the tensor's type and write what of it lies inside.

    `first` is best made anew for this, from the program's number: a variable that was there before
    keeps its register through all of the loops, which have none to spare.
    """
    o_col = tl.arange(0, padded(WIDTH))
    p_tile = row_pointer(x, first) + o_row[:, None] * x.t + o_col[None, :]
    m_inside = (o_row[:, None] < rows - first) & (o_col[None, :] < WIDTH)
    tl.store(p_tile, b.to(x.p.dtype.element_ty), mask=m_inside)


@triton.jit
def load_rows(x, first, o_row, rows, other):
    """A number for each row, `other` behind the last; rows are neighbours in these tensors."""
    return tl.load(x.p + first + o_row, mask=o_row < rows - first, other=other)


@triton.jit
def store_rows(x, first, b, o_row, rows):
    """The number of each row that exists."""
    tl.store(x.p + first + o_row, b, mask=o_row < rows - first)


@triton.jit
def visible(mask, window, o_q, o_k, T, S, CAUSAL: tl.constexpr):
    """Which queries see which keys: inside both lengths, not later, in the window and the mask.

    `o_q` and `o_k` have one dim each of length 1, in either order; so has what comes back.
    """
    m_visible = (o_q < T) & (o_k < S)
    if CAUSAL:
        m_visible &= o_k <= o_q + (S - T)
    if window is not None:
        m_visible &= o_k > o_q + (S - T) - window
    if mask is not None:
        p_pair = mask.p + o_q.to(tl.int64) * mask.t + o_k.to(tl.int64) * mask.s
        m_visible &= tl.load(p_pair, mask=m_visible, other=0) != 0
    return m_visible


@triton.jit
def key_range(
    first, T, S, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """For TILE_Q queries from `first` on: (full, end), keys that all see, and keys that any sees.

    Tiles of keys below `full` need no mask; those from there to `end` do; the rest is skipped.
    """
    full, end = S, S
    if CAUSAL:
        full = tl.minimum(tl.maximum(first + 1 + S - T, 0), S)
        end = tl.minimum(tl.maximum(first + TILE_Q + S - T, 0), S)
    full = 0 if MASKED else full // TILE_K * TILE_K
    return full, end


@triton.jit
def window_range(first, full, T, S, window, TILE_Q: tl.constexpr, TILE_K: tl.constexpr):
    """Where the window of TILE_Q queries from `first` on begins: (begin, left, full), in tiles.

    Keys before `begin` are skipped. Those up to `left` only some of the queries see, those from
    there to `full` all of them; a window so small that no tile is seen whole has none of these.
    """
    nearest = tl.maximum(first + S - T - window + 1, 0)  # the first query's first key
    furthest = tl.maximum(first + TILE_Q + S - T - window, 0)  # and the last one's
    begin = nearest // TILE_K * TILE_K
    full = tl.maximum(full, begin)
    left = tl.minimum(tl.cdiv(furthest, TILE_K) * TILE_K, full)
    return begin, left, full
