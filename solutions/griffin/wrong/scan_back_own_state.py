"""Has for the gradient of a decay the state behind it, not the one before it."""

KIND = "wrong formula"
FAILS = ["test_scan_back", "test_scan_back_documents", "test_scan_back_loads", "test_scan_back_any"]


def scan_back(
    p_a, p_h, p_dh, p_begins, p_initial, p_dlast, p_dlog_a, p_du, p_dinitial,
    T, D, BLOCK: tl.constexpr,
):  # fmt: skip
    i_b = tl.program_id(0)
    o_d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_d = o_d < D
    b_flow = tl.load(p_dlast + i_b * D + o_d, mask=m_d)
    for i in range(T):
        t = i_b * T + T - 1 - i
        b_du = b_flow + tl.load(p_dh + t * D + o_d, mask=m_d)
        b_flow = tl.load(p_a + t * D + o_d, mask=m_d) * b_du
        b_flow = tl.where(tl.load(p_begins + t) == 1, 0.0, b_flow)
        b_before = tl.load(p_h + t * D + o_d, mask=m_d)
        tl.store(p_dlog_a + t * D + o_d, b_flow * b_before, mask=m_d)
        tl.store(p_du + t * D + o_d, b_du, mask=m_d)
    tl.store(p_dinitial + i_b * D + o_d, b_flow, mask=m_d)
