"""Counts the uses of each barrier, and asks for Q as late as a wait for its own tiles allows."""


def ring(pieces, stages, consumers):
    owner = [i for i, n in enumerate(pieces) for _ in range(n)]
    used, rows = {}, [[] for _ in range(consumers + 1)]

    def nth(kind, place):
        used[kind, place] = used.get((kind, place), -1) + 1
        return used[kind, place]

    def ask(i):
        place = i % consumers
        rows[0].append(("stored", place, (nth("stored", place) + 1) % 2))
        rows[0].append(("query", place, i))

    asked = 0
    for tile in range(len(owner)):
        if tile >= stages:  # its slot is free once tile - stages has been read, which needs its Q
            for i in range(asked, owner[tile - stages] + 1):
                ask(i)
                asked = i + 1
        slot = tile % stages
        rows[0] += [("empty", slot, (nth("empty", slot) + 1) % 2), ("load", slot, tile)]
    for i in range(asked, len(pieces)):
        ask(i)
    tile = 0
    for i, n in enumerate(pieces):
        row = rows[1 + i % consumers]
        row.append(("asked", i % consumers, nth("asked", i % consumers) % 2))
        for _ in range(n):
            slot = tile % stages
            row += [
                ("full", slot, nth("full", slot) % 2),
                ("read", slot, tile),
                ("free", slot, tile),
            ]
            tile += 1
        row.append(("store", i % consumers, i))
    return rows
