"""Counts a hop on the way there, and forgets the gradient's on the way back."""

KIND = "part left out"
FAILS = [
    "test_eager_time",
    "test_eager_any",
]


def eager(f, bw, hops, m):
    alive = [1]
    for hop in reversed(hops):
        alive.insert(0, alive[0] + 1 - (-hop // (f + bw)))
    return [_keep(stage, m, n) for stage, n in enumerate(alive)]
