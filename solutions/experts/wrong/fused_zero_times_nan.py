"""Multiplies what was dropped by zero."""

KIND = "precision"
FAILS = ["test_fused_dropped", "test_fused_loads", "test_fused_any"]


def fused(
    p_x, p_w, p_order, p_weight, p_ends, p_y,
    C, k, E, D, N,
    BLOCK: tl.constexpr, EXPERTS: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    o_e = tl.arange(0, EXPERTS)
    b_end = tl.load(p_ends + o_e, mask=o_e < E, other=C)  # group E has what was dropped
    b_begin = tl.load(p_ends + o_e - 1, mask=(o_e > 0) & (o_e <= E), other=0)
    b_begin = tl.where(o_e <= E, b_begin, C)
    b_tiles = (b_end - b_begin + BLOCK - 1) // BLOCK
    first = tl.program_id(0) - (tl.cumsum(b_tiles, 0) - b_tiles)  # of the group's programs
    m_mine = (first >= 0) & (first < b_tiles)
    i_e = tl.sum(tl.where(m_mine, o_e + 1, 0), 0) - 1
    if i_e >= 0:
        begin = tl.sum(tl.where(m_mine, b_begin + first * BLOCK, 0), 0)
        end = tl.sum(tl.where(m_mine, b_end, 0), 0)
        o_r, o_d, o_n = begin + tl.arange(0, BLOCK), tl.arange(0, WIDE), tl.arange(0, COLUMNS)
        m_r, m_d, m_n = o_r < end, o_d < D, o_n < N
        b_c = tl.load(p_order + o_r, mask=m_r, other=0)
        b_y = tl.zeros([BLOCK, COLUMNS], tl.float32)
        if i_e <= E:
            p_rows = p_x + (b_c // k)[:, None] * D + o_d[None, :]
            b_x = tl.load(p_rows, mask=m_r[:, None] & m_d[None, :], other=0.0)
            p_matrix = p_w + (tl.minimum(i_e, E - 1) * D + o_d)[:, None] * N + o_n[None, :]
            b_w = tl.load(p_matrix, mask=m_d[:, None] & m_n[None, :], other=0.0)
            b_weight = tl.load(p_weight + b_c, mask=m_r, other=0.0)
            b_weight = tl.where(i_e < E, b_weight, b_weight * 0.0)
            b_y = b_weight[:, None] * tl.sum(b_x[:, :, None] * b_w[None, :, :], 1)
        p_out = p_y + b_c[:, None] * N + o_n[None, :]
        tl.store(p_out, b_y, mask=m_r[:, None] & m_n[None, :])
