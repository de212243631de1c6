"""Runs twice as far ahead at every cut, as is enough for most hops, and too much for none."""

KIND = "special case"
FAILS = [
    "test_eager_memory",
    "test_eager_time",
    "test_eager_any",
]


def eager(f, bw, hops, m):
    p = len(hops) + 1
    return [_keep(stage, m, 2 * (p - 1 - stage) + 1) for stage in range(p)]
