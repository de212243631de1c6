"""Row by row, with numbers in place of tiles of rows, and another order of sums."""


def statistics(
    p_scores, p_targets, p_stats,
    T, n, stride, first,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    begin = tl.program_id(0) * ROWS
    lanes = tl.arange(0, COLUMNS)
    for t in range(begin, min(begin + ROWS, T)):
        target = tl.load(p_targets + t)
        if target >= 0:
            most = float("-inf")
            b_sum, b_total, b_own = lanes * 0.0, lanes * 0.0, lanes * 0.0
            for turn in range((n + COLUMNS - 1) // COLUMNS):
                at = turn * COLUMNS + lanes
                b_s = tl.load(p_scores + t * stride + at, mask=at < n, other=float("-inf"))
                top = tl.maximum(most, tl.max(b_s, 0))
                b_sum = b_sum * tl.exp(most - top) + tl.exp(b_s - top)
                most = top
                b_total += tl.where(at < n, b_s, 0.0)
                b_own += tl.where((at < n) & (at + first == target), b_s, 0.0)
            tl.store(p_stats + 4 * t, most)
            tl.store(p_stats + 4 * t + 1, tl.sum(b_sum, 0))
            tl.store(p_stats + 4 * t + 2, tl.sum(b_total, 0))
            tl.store(p_stats + 4 * t + 3, tl.sum(b_own, 0))
        else:
            tl.store(p_stats + 4 * t + tl.arange(0, 4), tl.zeros([4], tl.float32))
