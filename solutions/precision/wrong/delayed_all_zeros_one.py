"""Begins anew with a scale of 1 where the history says nothing."""

KIND = "special case"
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
        elif history:
            scale = 1.0
        scaled = [abs(x) * scale for x in numbers]
        told.append((scale, sum(x > top for x in scaled), sum(0 < x <= least / 2 for x in scaled)))
        history.append(max(map(abs, numbers), default=0.0))
    return told
