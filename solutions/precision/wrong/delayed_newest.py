"""Makes the scale from the newest step alone."""

KIND = "part left out"
FAILS = [
    "test_delayed",
    "test_delayed_any",
    "test_delayed_fates",
    "test_delayed_odd",
]


def delayed(
    steps: list[list[float]], top: float, least: float, length: int, margin: int
) -> list[tuple[float, int, int]]:
    scale, history, told = 1.0, [], []
    for numbers in steps:
        amax = max(history[-1:], default=0.0)
        if 0 < amax < inf:
            scale = ldexp(1.0, frexp(top / amax)[1] - 1 - margin)
        scaled = [abs(x) * scale for x in numbers]
        told.append((scale, sum(x > top for x in scaled), sum(0 < x <= least / 2 for x in scaled)))
        history.append(max(map(abs, numbers), default=0.0))
    return told
