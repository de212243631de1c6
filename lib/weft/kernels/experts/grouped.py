"""One launch for the matmuls of all experts: y of an expert's rows is x of them times its matrix.

Nothing is padded: a program finds out whose rows its tile has, and masks what is behind the last.
Rows may be gathered where they are loaded and scattered where they are stored, so that no copy in
the order of experts is ever made.
"""

import triton
import triton.language as tl


@triton.jit
def whose(tiles, first, i_m, E, TILE: tl.constexpr, GROUPS: tl.constexpr):
    """Which group tile `i_m` belongs to, its first row, and the end of the group's.

    Group E has the rows of no expert; a group beyond it means that there is no such
    tile.
    """
    o_e = tl.arange(0, GROUPS)
    b_tiles = tl.load(tiles + o_e, mask=o_e <= E, other=2**30)
    i_e = tl.sum((b_tiles <= i_m).to(tl.int32), 0)
    before = tl.sum(tl.where(o_e == i_e - 1, b_tiles, 0), 0)
    begin = tl.load(first + tl.minimum(i_e, E)) + (i_m - before) * TILE
    return i_e, begin, tl.load(first + tl.minimum(i_e, E) + 1)


@triton.jit
def table_kernel(
    tiles, first, table, E, most, TILE: tl.constexpr, GROUPS: tl.constexpr
):  # fmt: skip
    """Of each of `most` tiles its group, its first row and the end of the group's.

    [3, most]: for kernels whose blocks take tile after tile and would search for
    each.
    """
    i_m = tl.program_id(0)
    i_e, begin, end = whose(tiles, first, i_m, E, TILE, GROUPS)
    tl.store(table + i_m, i_e)
    tl.store(table + most + i_m, begin)
    tl.store(table + 2 * most + i_m, end)


@triton.jit
def grouped_kernel(
    x, w, y, gather, scatter, gate, first, tiles, E, D, F, x_row, w_e, w_d, w_f,
    RELU: tl.constexpr, GROUPS: tl.constexpr, EXACT: tl.constexpr,
    TILE_M: tl.constexpr, TILE_K: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """TILE_M rows of a group times TILE_N columns of its matrix.

    Row r of the group is row gather[r] of x, and becomes row scatter[r] of y; r
    where there is no such list. RELU cuts off below 0; where there is a `gate`, y
    is 0 where that is not above 0. The tiles of a row are neighbours: they share
    its x.
    """
    columns = tl.cdiv(F, TILE_N)
    i_m, i_n = tl.program_id(0) // columns, tl.program_id(0) % columns
    i_e, begin, end = whose(tiles, first, i_m, E, TILE_M, GROUPS)
    if i_e > E:
        return
    o_row = begin + tl.arange(0, TILE_M)
    m_row = o_row < end
    o_f = i_n * TILE_N + tl.arange(0, TILE_N)
    b_y = tl.zeros([TILE_M, TILE_N], tl.float32)
    if i_e < E:
        o_from = o_row
        if gather is not None:
            o_from = tl.load(gather + o_row, mask=m_row, other=0)
        p_x = x + o_from.to(tl.int64)[:, None] * x_row
        p_w = w + i_e.to(tl.int64) * w_e + o_f[None, :].to(tl.int64) * w_f
        for start in range(0, D, TILE_K):
            o_d = start + tl.arange(0, TILE_K)
            m_x = m_row[:, None] & (o_d[None, :] < D)
            b_x = tl.load(p_x + o_d[None, :], mask=m_x, other=0.0)
            m_w = (o_d[:, None] < D) & (o_f[None, :] < F)
            b_w = tl.load(p_w + o_d[:, None] * w_d, mask=m_w, other=0.0)
            b_y = tl.dot(b_x, b_w, b_y, input_precision="ieee" if EXACT else None)
    o_to = o_row
    if scatter is not None:
        o_to = tl.load(scatter + o_row, mask=m_row, other=0)
    m_y = m_row[:, None] & (o_f[None, :] < F)
    if RELU:
        b_y = tl.where(b_y < 0, 0.0, b_y)  # a maximum would hide NaN
    if gate is not None:
        p_gate = gate + o_row.to(tl.int64)[:, None] * F + o_f[None, :]
        b_y = tl.where(tl.load(p_gate, mask=m_y, other=0.0) > 0, b_y, 0.0)
    p_y = y + o_to.to(tl.int64)[:, None] * F + o_f[None, :]
    tl.store(p_y, b_y.to(y.dtype.element_ty), mask=m_y)


@triton.jit
def weights_kernel(
    x, dy, dw, gather_x, gather_dy, first, D, F, x_row, dy_row, EXACT: tl.constexpr,
    TILE_M: tl.constexpr, TILE_K: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """A tile of an expert's dW = x^T dy, over its rows; 0 where it has none."""
    rows, columns = tl.cdiv(D, TILE_K), tl.cdiv(F, TILE_N)
    i = tl.program_id(0)
    i_e, i_d, i_f = i // (rows * columns), i // columns % rows, i % columns
    begin, end = tl.load(first + i_e), tl.load(first + i_e + 1)
    o_d = i_d * TILE_K + tl.arange(0, TILE_K)
    o_f = i_f * TILE_N + tl.arange(0, TILE_N)
    m_d, m_f = o_d < D, o_f < F
    b_dw = tl.zeros([TILE_K, TILE_N], tl.float32)
    for start in range(begin, end, TILE_M):
        o_row = start + tl.arange(0, TILE_M)
        m_row = o_row < end
        o_x = o_row
        if gather_x is not None:
            o_x = tl.load(gather_x + o_row, mask=m_row, other=0)
        o_dy = o_row
        if gather_dy is not None:
            o_dy = tl.load(gather_dy + o_row, mask=m_row, other=0)
        p_x = x + o_x.to(tl.int64)[None, :] * x_row + o_d[:, None]
        p_dy = dy + o_dy.to(tl.int64)[:, None] * dy_row + o_f[None, :]
        b_x = tl.load(p_x, mask=m_d[:, None] & m_row[None, :], other=0.0)
        b_dy = tl.load(p_dy, mask=m_row[:, None] & m_f[None, :], other=0.0)
        b_dw = tl.dot(b_x, b_dy, b_dw, input_precision="ieee" if EXACT else None)
    p_dw = dw + (i_e.to(tl.int64) * D + o_d[:, None]) * F + o_f[None, :]
    tl.store(p_dw, b_dw.to(dw.dtype.element_ty), mask=m_d[:, None] & m_f[None, :])
