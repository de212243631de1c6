"""One more at each cut, also where hops are exactly hidden with one fewer."""

KIND = "off by one"
FAILS = [
    "test_eager_memory",
    "test_eager_time",
    "test_eager_any",
]


def eager(f, bw, hops, m):
    alive = [1]
    for hop in reversed(hops):
        alive.insert(0, alive[0] + 2 + 2 * hop // (f + bw))
    return [_keep(stage, m, n) for stage, n in enumerate(alive)]
