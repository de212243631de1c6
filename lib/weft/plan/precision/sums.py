"""A weight that many small updates are added to, in a format too coarse for each of them."""

from random import Random

from weft.plan.arguments import chosen, few, instance, number, whole
from weft.plan.precision.formats import Format

WAYS = "exact", "nearest", "kahan", "stochastic"


def summed(
    format: Format, start: float, update: float, steps: int, way: str = "nearest", seed: int = 0
) -> list[float]:
    """The weight after each of so many equal updates, by one of WAYS.

    "exact" is the sum as a master copy has it. The others keep the weight in the format: rounded
    to the nearest; Kahan's sum, where what was rounded away waits in a second number of the format
    for the next update; and rounded up by chance, with the probability that is right on average.

    >>> from weft.plan.precision import FORMATS
    >>> [summed(FORMATS["bf16"], 1.0, 2.0**-9, 8, way)[-1] for way in ("exact", "nearest", "kahan")]
    [1.015625, 1.0, 1.015625]
    """
    instance(Format, format=format)
    weight, update = number("start", start), number("update", update)
    steps, way = whole("steps", steps), chosen("way", way, WAYS)
    few(steps, "steps", steps=steps)
    dice, lost, found = Random(whole("seed", seed, least=0)), 0.0, []
    weight = format.round(weight) if way != "exact" else weight
    for _ in range(steps):
        if way == "exact":
            weight += update
        elif way == "nearest":
            weight = format.round(weight + update)
        elif way == "kahan":
            owed = update + lost
            after = format.round(weight + owed)
            weight, lost = after, format.round(owed - (after - weight))
        else:
            weight = format.round(weight + update, threshold=dice.random())
        found.append(weight)
    return found
