"""The mask inside a partial square, and a list as kernels take it: who sees whom."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class ListView(NamedTuple):
    """A TileList for a kernel: its addresses and the strides of batch and head, 0 where shared."""

    bounds: Any
    tiles: Any
    b: Any
    h: Any


class LayoutView(NamedTuple):
    """A layout [H or 1, rows, columns] and the queries and keys of a block."""

    p: Any
    h: Any
    r: Any
    c: Any
    block: Any


class WindowView(NamedTuple):
    """How far a query sees, in which steps; and which keys all see, [B, T], or None."""

    reach: Any
    dilation: Any
    globals: Any
    b: Any


@triton.jit
def bounds(listed, i_b, i_h, i_row):
    """Where in the list of a row of squares the full ones begin, the partial ones, and the end."""
    p = listed.bounds + i_b * listed.b + i_h * listed.h + i_row * 3
    return tl.load(p), tl.load(p + 1), tl.load(p + 2)


@triton.jit
def following(tiles, i, end):
    """The square that comes next in a list; loops read it a turn ahead.

    Where a tile's address hangs on what its own turn reads, tiles are not loaded ahead of their
    use: the product waits for each as soon as it is asked for.
    """
    return tl.load(tiles + i, mask=i < end, other=0)


@triton.jit
def counts(layout, window, i_b, i_h, o_q, o_k, T, S, CAUSAL: tl.constexpr):
    """Which pairs of a partial square count; `o_q` and `o_k` have one dim each of length 1."""
    m_counts = (o_q < T) & (o_k < S)
    if CAUSAL:
        m_counts &= o_k <= o_q + (S - T)
    if layout is not None:
        row, column = o_q // layout.block, o_k // layout.block
        p_block = layout.p + i_h * layout.h + row.to(tl.int64) * layout.r + column * layout.c
        m_counts &= tl.load(p_block, mask=m_counts, other=0) != 0
    if window is not None:
        back = o_q - o_k
        m_near = (tl.abs(back) <= window.reach) & (back % window.dilation == 0)
        if window.globals is not None:
            p_key = window.globals + i_b * window.b + o_k
            m_near |= tl.load(p_key, mask=o_k < S, other=0) != 0
        m_counts &= m_near
    return m_counts
