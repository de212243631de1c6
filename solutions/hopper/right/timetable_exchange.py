"""As many steps as must be; who is in the way takes the other of two steps, and so on."""


def timetable(sees):
    counts = {}
    for tiles in sees:
        for j in tiles:
            counts[j] = counts.get(j, 0) + 1
    steps = max([*map(len, sees), *counts.values()], default=0)
    rows = [[None] * steps for _ in sees]

    def at(j, step):
        return next((i for i, row in enumerate(rows) if row[step] == j), None)

    for i, tiles in enumerate(sees):
        for j in tiles:
            a = rows[i].index(None)
            b = next(step for step in range(steps) if at(j, step) is None)
            chain, tile, old, new = [], j, a, b
            while tile is not None and at(tile, old) is not None:
                program = at(tile, old)
                chain.append(program)
                tile = rows[program][new]
            for program in chain:
                rows[program][a], rows[program][b] = rows[program][b], rows[program][a]
            rows[i][a] = j
    return rows
