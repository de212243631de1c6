"""The first token comes after the loop, and a begin multiplies by 0."""


def scan_back(
    p_a, p_h, p_dh, p_begins, p_initial, p_dlast, p_dlog_a, p_du, p_dinitial,
    T, D, BLOCK: tl.constexpr,
):  # fmt: skip
    b, j = tl.program_id(0), tl.program_id(1)
    d = j * BLOCK + tl.arange(0, BLOCK)
    ok = d < D
    c = tl.load(p_dlast + b * D + d, mask=ok, other=0.0)
    t = T - 1
    while t > 0:
        row = (b * T + t) * D + d
        keep = 1.0 - tl.load(p_begins + b * T + t)
        a = tl.load(p_a + row, mask=ok, other=0.0) * keep
        h = tl.load(p_h + row - D, mask=ok, other=0.0)
        c += tl.load(p_dh + row, mask=ok, other=0.0)
        tl.store(p_du + row, c, mask=ok)
        tl.store(p_dlog_a + row, a * c * h, mask=ok)
        c = a * c
        t -= 1
    row = b * T * D + d
    c += tl.load(p_dh + row, mask=ok, other=0.0)
    tl.store(p_du + row, c, mask=ok)
    keep = 1.0 - tl.load(p_begins + b * T)
    c *= tl.load(p_a + row, mask=ok, other=0.0) * keep
    tl.store(p_dlog_a + row, c * tl.load(p_initial + b * D + d, mask=ok, other=0.0), mask=ok)
    tl.store(p_dinitial + b * D + d, c, mask=ok)
