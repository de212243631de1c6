"""Takes the step of a shifted order, or the first free one, and moves none."""

KIND = "gives up"
FAILS = ["test_timetable_sparse", "test_timetable_any"]


def timetable(sees):
    names = sorted({j for tiles in sees for j in tiles})
    most = max([*map(len, sees), *(sum(j in tiles for tiles in sees) for j in names)], default=0)
    rows, busy = [], {j: set() for j in names}
    for i, tiles in enumerate(sees):
        row = {}
        for j in tiles:
            step = (i + j) % most
            if step in row or step in busy[j]:
                step = min(set(range(3 * most)) - row.keys() - busy[j])
            row[step] = j
            busy[j].add(step)
        rows.append([row.get(step) for step in range(max(row, default=-1) + 1)])
    return rows
