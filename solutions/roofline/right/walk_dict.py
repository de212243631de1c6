"""With a dict, which knows the order in which its keys came, and the least bytes found at the end."""


def walk(rows, columns, steps, a, b, cache, wave, groups):
    bytes_of = {}
    for g in groups:
        order = [
            (top + i, column)
            for top in range(0, rows, g)
            for column in range(columns)
            for i in range(min(g, rows - top))
        ]
        there, used, moved = {}, 0, 0
        for w in range(0, len(order), wave):
            for s in range(steps):
                for r, c in order[w : w + wave]:
                    for key, size in ((("A", r, s), a), (("B", c, s), b)):
                        if there.pop(key, None) is None:
                            moved += size
                            used += size
                        there[key] = size
                        while used > cache:
                            used -= there.pop(next(iter(there)))
        bytes_of[g] = moved
    best = min(bytes_of.values())
    return min(g for g in groups if bytes_of[g] == best), best
