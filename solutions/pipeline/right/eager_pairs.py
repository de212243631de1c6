"""Runs ahead, then a forward and a backward in turn; with rounded floats."""


def eager(f, bw, hops, m):
    from math import ceil

    rows = []
    for stage in range(len(hops) + 1):
        ahead = sum(1 + ceil(2 * hop / (f + bw)) for hop in hops[stage:])
        actions = [("F", i) for i in range(min(m, ahead))]
        for i in range(m):
            if ahead + i < m:
                actions += [("F", ahead + i)]
            actions += [("BW", i)]
        rows.append([(kind, i, stage) for kind, i in actions])
    return rows
