"""How far numbers reach: decays that are split between query and key, and running sums.

The fade between key j and query i of a chunk, exp(b_i - b_j), is at most 1. A decay for each
channel stands inside the sum over channels, so a matmul needs it split, exp(b_i - r) exp(r - b_j),
and the second factor grows with every token. r is the sum before the first token here.
"""

from math import floor, log

from weft.plan.arguments import amount, whole
from weft.plan.precision import known


def least_decay(rows: int, format: str) -> float:
    """The fastest constant decay per token that so many rows can be split at.

    After `rows` tokens 1 / decay^rows is the format's largest number.

    >>> round(least_decay(64, "fp16"), 3), round(least_decay(64, "fp32"), 3)
    (0.841, 0.25)
    """
    return known(format).max ** (-1 / whole("rows", rows))


def most_rows(decay: float, format: str) -> int:
    """The most tokens of a constant decay per token, below 1, that can be split at once.

    >>> most_rows(0.251, "fp32"), most_rows(0.841, "fp16")
    (64, 64)
    """
    decay = amount("decay", decay, above=True)
    if decay >= 1:
        raise ValueError(f"decay is {decay}, must be below 1: nothing grows at 1")
    return floor(log(known(format).max) / -log(decay))


def stalls(format: str, term: float = 1.0) -> float:
    """Where a running sum of equal terms stops to grow, because each is rounded away.

    The numbers from a power of two x on are epsilon x apart, so a term of at most half of that
    leaves x as it is: of two neighbours as near, the even one, x, is taken. ValueError where the
    sum overflows before.

    >>> stalls("bf16"), stalls("fp16"), stalls("bf16", term=1.16)
    (256.0, 2048.0, 512.0)
    """
    known(format)
    term = amount("term", term, above=True)
    epsilon, most = known(format).epsilon, known(format).max
    x = 2.0 ** floor(log(2 * term / epsilon, 2) - 1)  # no more than half of the answer's range
    while x * epsilon < 2 * term:
        x *= 2
    if x > most:
        raise ValueError(f"term is {term}, must be less: its sum in {format} overflows, at {most}")
    return x
