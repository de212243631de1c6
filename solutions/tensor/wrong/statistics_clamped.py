"""Takes the nearest word of this part for a target of another."""

KIND = "wrong formula"
FAILS = ["test_statistics", "test_statistics_edges", "test_statistics_loads", "test_statistics_any"]


def statistics(
    p_scores, p_targets, p_stats,
    T, n, stride, first,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    o_t = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    b_target = tl.load(p_targets + o_t, mask=o_t < T, other=-1)
    m_t = b_target >= 0
    b_most = tl.where(m_t, float("-inf"), 0.0)
    b_sum = tl.zeros([ROWS], tl.float32)
    b_total = tl.zeros([ROWS], tl.float32)
    b_found = tl.zeros([ROWS], tl.float32)
    for begin in range(0, n, COLUMNS):
        o_n = begin + tl.arange(0, COLUMNS)
        m_s = m_t[:, None] & (o_n < n)[None, :]
        p_tile = p_scores + o_t[:, None] * stride + o_n[None, :]
        b_s = tl.load(p_tile, mask=m_s, other=0.0)
        b_top = tl.max(tl.where(m_s, b_s, float("-inf")), 1)
        b_top = tl.maximum(b_most, tl.where(m_t, b_top, 0.0))
        b_e = tl.where(m_s, tl.exp(b_s - b_top[:, None]), 0.0)
        b_sum = b_sum * tl.exp(b_most - b_top) + tl.sum(b_e, 1)
        b_most = b_top
        b_total += tl.sum(b_s, 1)
        b_at = tl.minimum(tl.maximum(b_target - first, 0), n - 1)
        b_found += tl.sum(tl.where(b_at[:, None] == o_n[None, :], b_s, 0.0), 1)
    p_row = p_stats + o_t * 4
    tl.store(p_row, b_most, mask=o_t < T)
    tl.store(p_row + 1, b_sum, mask=o_t < T)
    tl.store(p_row + 2, b_total, mask=o_t < T)
    tl.store(p_row + 3, b_found, mask=o_t < T)
