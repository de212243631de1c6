"""Takes exponentials of what a query does not see, and then multiplies by 0."""

KIND = "precision"
FAILS = [
    "test_columns",
    "test_columns_shared",
    "test_columns_loads",
    "test_columns_any",
]


def columns(
    p_q, p_k, p_v, p_do, p_lse, p_delta, p_starts, p_queries, p_dk, p_dv,
    T, H, K, scale,
    BLOCK: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    c, g = tl.program_id(0), tl.program_id(1)
    N, G = tl.num_programs(0), tl.num_programs(1)
    R = H // G
    o_j, o_x = c * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    own = (o_j[:, None] * G + g) * K + o_x[None, :]
    m_own = (o_j < T)[:, None] & (o_x < K)[None, :]
    b_k = tl.load(p_k + own, mask=m_own, other=0.0)
    b_v = tl.load(p_v + own, mask=m_own, other=0.0)
    b_dk, b_dv = tl.zeros([BLOCK, WIDTH], tl.float32), tl.zeros([BLOCK, WIDTH], tl.float32)
    begin, end = tl.load(p_starts + g * N + c), tl.load(p_starts + g * N + c + 1)
    for start in range(begin, end, TILE):
        o_i = start + tl.arange(0, TILE)
        b_t = tl.load(p_queries + o_i, mask=o_i < end, other=-1)
        m_t = b_t >= c * BLOCK
        m_sees = (b_t[:, None] >= o_j[None, :]) & (o_j < T)[None, :]
        for h in range(g * R, g * R + R):
            at = b_t * H + h
            m_q = m_t[:, None] & (o_x < K)[None, :]
            b_q = tl.load(p_q + at[:, None] * K + o_x[None, :], mask=m_q, other=0.0)
            b_do = tl.load(p_do + at[:, None] * K + o_x[None, :], mask=m_q, other=0.0)
            b_lse = tl.load(p_lse + at, mask=m_t, other=0.0)
            b_delta = tl.load(p_delta + at, mask=m_t, other=0.0)
            b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * scale
            b_p = tl.exp(b_s - b_lse[:, None]) * m_sees.to(tl.float32)
            b_dp = tl.dot(b_do, tl.trans(b_v), input_precision="ieee")
            b_ds = b_p * (b_dp - b_delta[:, None]) * scale
            b_dk += tl.dot(tl.trans(b_ds), b_q, input_precision="ieee")
            b_dv += tl.dot(tl.trans(b_p), b_do, input_precision="ieee")
    tl.store(p_dk + own, b_dk, mask=m_own)
    tl.store(p_dv + own, b_dv, mask=m_own)
