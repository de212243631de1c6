"""Walks over experts in a loop, multiplies with tl.dot, and stores dropped rows for themselves."""


def fused(
    p_x, p_w, p_order, p_weight, p_ends, p_y,
    C, k, E, D, N,
    BLOCK: tl.constexpr, EXPERTS: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    left, begin = tl.program_id(0), 0
    for e in range(E + 1):
        end = C
        if e < E:
            end = tl.load(p_ends + e)
        tiles = tl.cdiv(end - begin, BLOCK)
        if (left >= 0) & (left < tiles):
            o_r = begin + left * BLOCK + tl.arange(0, BLOCK)
            o_d, o_n = tl.arange(0, WIDE), tl.arange(0, COLUMNS)
            m_r = o_r < end
            b_c = tl.load(p_order + o_r, mask=m_r, other=0)
            m_y = m_r[:, None] & (o_n < N)[None, :]
            p_rows = p_y + b_c[:, None] * N + o_n[None, :]
            if e == E:
                tl.store(p_rows, tl.zeros([BLOCK, COLUMNS], tl.float32), mask=m_y)
            else:
                b_weight = tl.load(p_weight + b_c, mask=m_r, other=0.0)
                m_x = m_r[:, None] & (o_d < D)[None, :]
                b_x = tl.load(p_x + (b_c // k)[:, None] * D + o_d[None, :], mask=m_x, other=0.0)
                m_w = (o_d < D)[:, None] & (o_n < N)[None, :]
                b_w = tl.load(p_w + (e * D + o_d)[:, None] * N + o_n[None, :], mask=m_w, other=0.0)
                b_y = tl.dot(b_x * b_weight[:, None], b_w, input_precision="ieee")
                tl.store(p_rows, b_y, mask=m_y)
        left -= tiles
        begin = end
