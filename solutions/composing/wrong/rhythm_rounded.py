"""The best fraction, rounded: near n + 1/2 the other whole number may lose less."""

from math import sqrt

KIND = "gives up"
FAILS = ["test_rhythm", "test_rhythm_levels", "test_rhythm_runs", "test_rhythm_any"]


def rhythm(runs: list, hours: float, share: float, costs: dict) -> tuple | None:
    best = None
    for i, (gpus, step) in enumerate(runs):
        M = 3600 * hours / gpus
        always = (share * costs["near"] + (1 - share) * costs["far"]) / M
        least = None
        for k in range(1, 101):
            taken = (costs["copy"] + costs["write"] / k) / step
            again = (share + (1 - share) * k) * step / 2 / M
            a = max(1, round(sqrt(taken / again)))
            lost = always + taken / a + again * a
            if least is None or lost < least[0]:
                least = lost, a, k
        steps = (1 - least[0]) * 86400 / step
        if steps > 0 and (best is None or steps > best[-1]):
            best = i, *least[1:], steps
    return best
