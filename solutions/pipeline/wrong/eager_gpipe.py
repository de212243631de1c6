"""All forwards first: no message holds that up, and everything is kept."""

KIND = "too much memory"
FAILS = [
    "test_eager_memory",
    "test_eager_time",
    "test_eager_any",
]


def eager(f, bw, hops, m):
    return [_keep(stage, m, m) for stage in range(len(hops) + 1)]
