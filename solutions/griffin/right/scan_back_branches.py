"""Branches at the first token, and where a document begins."""


def scan_back(
    p_a,
    p_h,
    p_dh,
    p_begins,
    p_initial,
    p_dlast,
    p_dlog_a,
    p_du,
    p_dinitial,
    T,
    D,
    BLOCK: tl.constexpr,
):
    b = tl.program_id(0)
    ch = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = ch < D
    base = b * T * D + ch
    flow = tl.load(p_dlast + b * D + ch, mask=ok, other=0)
    for i in range(T):
        t = T - i - 1
        begin = tl.load(p_begins + b * T + t)
        dh = tl.load(p_dh + base + t * D, mask=ok, other=0)
        a = tl.load(p_a + base + t * D, mask=ok, other=0)
        if t > 0:
            prev = tl.load(p_h + base + (t - 1) * D, mask=ok, other=0)
        else:
            prev = tl.load(p_initial + b * D + ch, mask=ok, other=0)
        c = dh + flow
        tl.store(p_du + base + t * D, c, mask=ok)
        if begin == 1:
            tl.store(p_dlog_a + base + t * D, tl.zeros([BLOCK], tl.float32), mask=ok)
            flow = tl.zeros([BLOCK], tl.float32)
        else:
            tl.store(p_dlog_a + base + t * D, c * prev * a, mask=ok)
            flow = c * a
    tl.store(p_dinitial + b * D + ch, flow, mask=ok)
