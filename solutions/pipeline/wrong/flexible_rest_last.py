"""Groups of p, and all that is left goes to the last one."""

KIND = "too much memory"
FAILS = [
    "test_flexible_memory",
    "test_flexible_time",
    "test_flexible_any",
]


def flexible(p, m, v):
    cuts = [p * i for i in range(max(1, m // p))] + [m]
    largest = max(end - begin for begin, end in itertools.pairwise(cuts))
    rows = []
    for rank in range(p):
        order = [
            (i, chunk)
            for begin, end in itertools.pairwise(cuts)
            for chunk in range(v)
            for i in range(begin, end)
        ]
        forwards = [Action("F", i, rank + p * chunk) for i, chunk in order]
        backwards = [Action("BW", i, rank + p * (v - 1 - chunk)) for i, chunk in order]
        ahead = (v - 1) * largest + min(m, p - rank) - 1
        row = forwards[:ahead]
        for i, backward in enumerate(backwards):
            row += [*forwards[ahead + i : ahead + i + 1], backward]
        rows.append(row)
    return rows
