"""Lets the slice go that was fetched first, not the one that has lain unused for longest."""

KIND = "wrong formula"
FAILS = [
    "test_walk_single",
    "test_walk_waves",
    "test_walk_groups",
    "test_walk_any",
]


def walk(
    rows: int, columns: int, steps: int, a: int, b: int, cache: int, wave: int, groups: list[int]
) -> tuple[int, int]:
    best = None
    for g in sorted(groups):
        order = []
        for top in range(0, rows, g):
            high = min(g, rows - top)
            order += [(top + i % high, i // high) for i in range(high * columns)]
        held, used, moved = OrderedDict(), 0, 0
        for first in range(0, len(order), wave):
            programs = order[first : first + wave]
            for step in range(steps):
                for row, column in programs:
                    for key, size in (((0, row, step), a), ((1, column, step), b)):
                        if key in held:
                            continue
                        moved += size
                        used += size
                        while used > cache:
                            used -= held.popitem(last=False)[1]
                        held[key] = size
        if best is None or moved < best[1]:
            best = g, moved
    return best
