"""Adds up the hops below a stage and rounds their sum, where each cut has to be whole."""

KIND = "precision"
FAILS = [
    "test_eager_time",
    "test_eager_any",
]


def eager(f, bw, hops, m):
    p = len(hops) + 1
    return [_keep(stage, m, p - stage - (-2 * sum(hops[stage:]) // (f + bw))) for stage in range(p)]
