"""Groups of p, and what is left is a group, too: its first is not yet round."""

KIND = "edge of the range"
FAILS = [
    "test_flexible_time",
    "test_flexible_any",
]


def flexible(p, m, v):
    cuts = [*range(0, m, p), m]
    largest = min(m, p)
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
