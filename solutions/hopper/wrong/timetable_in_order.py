"""Adds to each dQ in the order of the keys, and walks from the first query on."""

KIND = "too much time"
FAILS = ["test_timetable_regular", "test_timetable_sparse", "test_timetable_any"]


def timetable(sees):
    after, rows = {}, []
    for tiles in sees:
        row = []
        for j in sorted(tiles):
            row += [None] * (after.get(j, 0) - len(row)) + [j]
            after[j] = len(row)
        rows.append(row)
    return rows
