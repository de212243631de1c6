"""With the time of each last use, and a search for the oldest when one has to leave."""


def walk(rows, columns, steps, a, b, cache, wave, groups):
    results = []
    for g in groups:
        programs = []
        row = 0
        while row < rows:
            group = range(row, min(row + g, rows))
            programs.extend((r, c) for c in range(columns) for r in group)
            row = group.stop
        used_at, sizes, clock, total, room = {}, {"a": a, "b": b}, 0, 0, cache
        while programs:
            now, programs = programs[:wave], programs[wave:]
            loads = [x for s in range(steps) for r, c in now for x in (("a", r, s), ("b", c, s))]
            for load in loads:
                clock += 1
                if load not in used_at:
                    total += sizes[load[0]]
                    while room < sizes[load[0]]:
                        oldest = min(used_at, key=used_at.get)
                        room += sizes[oldest[0]]
                        del used_at[oldest]
                    room -= sizes[load[0]]
                used_at[load] = clock
        results.append((total, g))
    total, g = min(results)
    return [g, total]
