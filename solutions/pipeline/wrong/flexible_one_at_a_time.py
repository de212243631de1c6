"""A microbatch at a time, all of its stages forward and then backward."""

KIND = "too much time"
FAILS = [
    "test_flexible_time",
    "test_flexible_any",
]


def flexible(p, m, v):
    rows = []
    for rank in range(p):
        stages = range(rank, p * v, p)
        row = []
        for i in range(m):
            row += [("F", i, stage) for stage in stages]
            row += [("BW", i, stage) for stage in reversed(stages)]
        rows.append(row)
    return rows
