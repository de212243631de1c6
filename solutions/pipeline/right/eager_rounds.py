"""Asks for the fewest microbatches that fill a round between two neighbours."""


def eager(f, bw, hops, m):
    each = f + bw
    rows = [_row(1, len(hops), m)]
    alive = 1
    for stage in range(len(hops) - 1, -1, -1):
        sharing = 2
        while sharing * each < 2 * each + 2 * hops[stage]:
            sharing += 1
        alive += sharing - 1
        rows.append(_row(alive, stage, m))
    return rows[::-1]


def _row(alive, stage, m):
    timed = [(i, 1, Action("BW", i, stage)) for i in range(m)]
    timed += [(max(i - alive, -1), 2, Action("F", i, stage)) for i in range(m)]
    timed.sort(key=lambda one: one[:2])
    return [action for *_, action in timed]
