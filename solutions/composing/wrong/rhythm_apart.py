"""Rounds the best fractions, found apart: a from copies, k from writes."""

from math import sqrt

KIND = "gives up"
FAILS = ["test_rhythm_levels", "test_rhythm_runs", "test_rhythm_any"]


def rhythm(runs: list, hours: float, share: float, costs: dict) -> tuple | None:
    best = None
    for i, (gpus, step) in enumerate(runs):
        M = 3600 * hours / gpus
        always = (share * costs["near"] + (1 - share) * costs["far"]) / M
        least = None
        best_a = sqrt(2 * costs["copy"] * M / max(share, 1e-9)) / step if share else 0
        best_k = sqrt(costs["write"] * share / costs["copy"] / (1 - share))
        for k in (min(100, max(1, round(best_k))),):
            taken = (costs["copy"] + costs["write"] / k) / step
            again = (share + (1 - share) * k) * step / 2 / M
            near = max(1, int(sqrt(taken / again)))
            for a in (near, near + 1):
                lost = always + taken / a + again * a
                if least is None or lost < least[0]:
                    least = lost, a, k
        steps = (1 - least[0]) * 86400 / step
        if steps > 0 and (best is None or steps > best[-1]):
            best = i, *least[1:], steps
    return best
