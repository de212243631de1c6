"""Compares the goodput of all k, each with the whole numbers about the best fraction."""

from itertools import product
from math import ceil, floor


def rhythm(runs: list, hours: float, share: float, costs: dict) -> tuple | None:
    best = (0.0, None)
    for place, (n, sigma) in enumerate(runs):
        between = hours * 3600 / n
        for k, side in product(range(1, 101), (floor, ceil)):
            mean = share + (1 - share) * k  # of the time between copies that a failure goes back
            tau = (2 * between * (costs["copy"] + costs["write"] / k) / mean) ** 0.5
            a = max(1, side(tau / sigma))
            goodput = 1 - (costs["copy"] + costs["write"] / k) / (a * sigma)
            goodput -= a * sigma * mean / 2 / between
            goodput -= (share * costs["near"] + (1 - share) * costs["far"]) / between
            best = max(best, (goodput / sigma * 86400, (place, a, k)), key=lambda one: one[0])
    return best[1] and (*best[1], best[0])
