"""Leaves infinities out of the history, so the scale goes on changing."""

KIND = "edge of the range"
FAILS = [
    "test_delayed_any",
    "test_delayed_odd",
]


def delayed(
    steps: list[list[float]], top: float, least: float, length: int, margin: int
) -> list[tuple[float, int, int]]:
    scale, history, told = 1.0, [], []
    for numbers in steps:
        amax = max(history[-length:], default=0.0)
        if 0 < amax < inf:
            scale = ldexp(1.0, frexp(top / amax)[1] - 1 - margin)
        scaled = [abs(x) * scale for x in numbers]
        told.append((scale, sum(x > top for x in scaled), sum(0 < x <= least / 2 for x in scaled)))
        history.append(max((abs(x) for x in numbers if abs(x) < inf), default=0.0))
    return told
