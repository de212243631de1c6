"""Takes it that there are as many tiles of queries as of keys."""

KIND = "edge of the range"
FAILS = ["test_timetable", "test_timetable_regular", "test_timetable_sparse", "test_timetable_any"]


def timetable(sees: list[list[int]]) -> list[list[int | None]]:
    keys = [{} for _ in sees]  # of a program: step -> tile
    queries = [{} for _ in sees]  # of a dQ: step -> program

    def free(taken):
        return next(step for step in range(len(taken) + 1) if step not in taken)

    for i, tiles in enumerate(sees):
        for j in tiles:
            mine, its = keys[i], queries[j]
            here, there = free(mine), free(its)
            if here in its:  # turn the path of here, there, here … that begins at this dQ
                path, at, step = [], j, here
                while at is not None:
                    program = queries[at].get(step)
                    if program is None:
                        break
                    path.append((program, at, step))
                    other = keys[program].get(there)
                    if other is None:
                        break
                    path.append((program, other, there))
                    at = other
                for program, tile, old in path:
                    del keys[program][old], queries[tile][old]
                for program, tile, old in path:
                    new = here + there - old
                    keys[program][new], queries[tile][new] = tile, program
            mine[here], its[here] = j, i
    return [[row.get(step) for step in range(max(row, default=-1) + 1)] for row in keys]
