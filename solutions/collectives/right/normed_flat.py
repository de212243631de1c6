"""A token at a time, in one dimension."""


def normed(
    p_window, p_residual, p_gain,
    n, T, D, first, count,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    o_d = tl.arange(0, COLUMNS)
    b_gain = tl.load(p_gain + o_d, mask=o_d < D, other=0.0)
    begin = tl.program_id(0) * ROWS
    for t in range(begin, min(begin + ROWS, count)):
        p_row = p_residual + t * D + o_d
        b_sum = tl.load(p_window + (first + t) * D + o_d, mask=o_d < D, other=0.0).to(tl.float32)
        for j in range(1, n):
            p_other = p_window + (j * T + first + t) * D + o_d
            b_sum += tl.load(p_other, mask=o_d < D, other=0.0).to(tl.float32)
        b_sum += tl.load(p_row, mask=o_d < D, other=0.0)
        tl.store(p_row, b_sum, mask=o_d < D)
        b_y = b_sum * tl.rsqrt(tl.sum(b_sum * b_sum, 0) / D + 1e-6) * b_gain
        for j in range(n):
            p_other = p_window + (j * T + first + t) * D + o_d
            tl.store(p_other, b_y.to(tl.float16), mask=o_d < D)
