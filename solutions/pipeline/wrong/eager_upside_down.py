"""Counts the cuts above a stage instead of those below it."""

KIND = "wrong order"
FAILS = [
    "test_eager_order",
    "test_eager_memory",
    "test_eager_time",
    "test_eager_any",
]


def eager(f, bw, hops, m):
    alive = [1]
    for hop in hops:
        alive.append(alive[-1] + 1 - (-2 * hop // (f + bw)))
    return [_keep(stage, m, n) for stage, n in enumerate(alive)]
