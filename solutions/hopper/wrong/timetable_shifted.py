"""Begins each program a tile further on, and waits where its keys are not seen."""

KIND = "special case"
FAILS = ["test_timetable_regular", "test_timetable_sparse", "test_timetable_any"]


def timetable(sees):
    tiles = sorted({j for one in sees for j in one})
    n = max(len(sees), len(tiles))
    rows = [[None] * n for _ in sees]
    for i, one in enumerate(sees):
        for j in one:
            rows[i][(tiles.index(j) - i) % n] = j
    return rows
