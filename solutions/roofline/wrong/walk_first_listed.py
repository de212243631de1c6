"""Of groups that fetch as many bytes takes the one first in the list."""

KIND = "edge of the range"
FAILS = [
    "test_walk_groups",
    "test_walk_any",
]


def walk(
    rows: int, columns: int, steps: int, a: int, b: int, cache: int, wave: int, groups: list[int]
) -> tuple[int, int]:
    best = None
    for g in groups:
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
                            held.move_to_end(key)
                            continue
                        moved += size
                        used += size
                        while used > cache:
                            used -= held.popitem(last=False)[1]
                        held[key] = size
        if best is None or moved < best[1]:
            best = g, moved
    return best
