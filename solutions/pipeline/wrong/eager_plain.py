"""1F1B, as if messages took no time."""

KIND = "part left out"
FAILS = [
    "test_eager_time",
    "test_eager_any",
]


def eager(f, bw, hops, m):
    p = len(hops) + 1
    return [_keep(stage, m, p - stage) for stage in range(p)]
