"""Begins with the residual, and goes from the last rank to the first."""


def normed(
    p_window, p_residual, p_gain,
    n, T, D, first, count,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    o_t = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    o_d = tl.arange(0, COLUMNS)[None, :]
    mask = (o_t < count) & (o_d < D)
    p_own = p_residual + o_t * D + o_d
    b_sum = tl.load(p_own, mask=mask, other=0.0)
    for j in range(n):
        p_tile = p_window + ((n - 1 - j) * T + first + o_t) * D + o_d
        b_sum += tl.load(p_tile, mask=mask, other=0.0).to(tl.float32)
    tl.store(p_own, b_sum, mask=mask)
    b_gain = tl.load(p_gain + o_d, mask=o_d < D, other=0.0)
    b_y = b_sum * tl.rsqrt(tl.sum(b_sum * b_sum, 1) / D + 1e-6)[:, None] * b_gain
    for j in range(n):
        p_tile = p_window + (j * T + first + o_t) * D + o_d
        tl.store(p_tile, b_y.to(tl.float16), mask=mask)
