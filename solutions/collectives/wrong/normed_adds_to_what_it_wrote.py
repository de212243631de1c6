"""Adds the residual to the sum before the norm, and keeps the one without it."""

KIND = "wrong order"
FAILS = ["test_normed", "test_normed_edges", "test_normed_loads", "test_normed_any"]


def normed(
    p_window, p_residual, p_gain,
    n, T, D, first, count,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    o_t = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    o_d = tl.arange(0, COLUMNS)
    m_d = o_d < D
    mask = (o_t < count)[:, None] & m_d[None, :]
    o_own = o_t[:, None] * D + o_d[None, :]
    p_token = p_window + first * D + o_own
    b_sum = tl.zeros([ROWS, COLUMNS], tl.float32)
    for j in range(n):
        b_sum += tl.load(p_token + j * T * D, mask=mask, other=0.0).to(tl.float32)
    tl.store(p_residual + o_own, b_sum, mask=mask)
    b_sum += tl.load(p_residual + o_own, mask=mask, other=0.0)
    b_root = tl.sqrt(tl.sum(b_sum * b_sum, 1) / D + 1e-6)
    b_y = b_sum / b_root[:, None] * tl.load(p_gain + o_d, mask=m_d, other=0.0)[None, :]
    for j in range(n):
        tl.store(p_token + j * T * D, b_y.to(tl.float16), mask=mask)
