"""How many tokens an expert takes, and how many choices find it full."""

import heapq
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import ceil, exp, lgamma, log, log1p, pi, sqrt

from weft.plan.arguments import amount, few, positive, row, sizes, whole

MOST = 10**6  # of a capacity factor: at the number of experts, everybody may choose the same one


def capacity(tokens: int, experts: int, factor: float, k: int = 1) -> int:
    """How many tokens one expert takes, ceil(k tokens factor / experts).

    `factor` is the decimal number as it is written: 1.1 is 11 / 10, and rounds nothing up.
    Fedus et al. 2022, equation 3.

    >>> capacity(tokens=100, experts=10, factor=1.1)
    11
    """
    tokens, (experts, k) = whole("tokens", tokens, 0), sizes(experts=experts, k=k)
    (factor,) = positive(factor=factor)
    if factor > MOST:
        raise ValueError(f"factor is {factor!r}, must be at most {MOST:g}")
    if k > experts:
        raise ValueError(f"k is {k}, must be at most experts = {experts}")
    return ceil(k * tokens * Fraction(str(factor)) / experts)


def dropped(counts: Sequence[int], capacity: int) -> int:
    """How many choices find their expert full, from how many each expert was given.

    >>> dropped([5, 1, 2], capacity=3)
    2
    """
    capacity = whole("capacity", capacity, 0)
    given = (whole("counts", count, 0) for count in row("counts", counts, empty=True))
    return sum(max(0, count - capacity) for count in given)


def drop_share(tokens: int, experts: int, factor: float, k: int = 1) -> float:
    """The share of choices that a uniform router drops, on average.

    The load of an expert is binomial, k of E for each token; what is above its capacity is
    dropped, the same for all experts: E / (k T) times the mean of max(0, load - capacity).

    >>> f"{drop_share(4096, 64, factor=1.0):.2%}", f"{drop_share(4096, 64, factor=1.25):.2%}"
    ('4.94%', '0.13%')
    """
    most = capacity(tokens, experts, factor, k)
    tokens, (experts, k) = whole("tokens", tokens, 0), sizes(experts=experts, k=k)
    few(tokens, "tokens", tokens=tokens)
    return experts * _above(tokens, k / experts, most) / (k * tokens) if tokens else 0.0


def near_drop_share(tokens: int, experts: int, k: int = 1) -> float:
    """What `drop_share` comes close to at factor 1: sqrt((E / k - 1) / (2 pi T)).

    It is half of the mean absolute deviation of a normal load, over its mean.

    >>> f"{near_drop_share(4096, 64):.2%}"
    '4.95%'
    """
    tokens, experts, k = sizes(tokens=tokens, experts=experts, k=k)
    if k > experts:
        raise ValueError(f"k is {k}, must be at most experts = {experts}")
    return sqrt((experts / k - 1) / (2 * pi * tokens))


def loads(
    tokens: int, experts: int, k: int = 1, skew: float = 0.0, seed: int = 0
) -> tuple[int, ...]:
    """How many of `tokens` choose each expert, drawn: expert i with odds of (i + 1)**-skew.

    Each token draws k different experts, one after the other. The same seed draws the same.

    >>> loads(100, 4), loads(100, 4, skew=1.0)
    ((12, 25, 28, 35), (35, 29, 19, 17))
    """
    tokens, (experts, k) = whole("tokens", tokens, 0), sizes(experts=experts, k=k)
    skew, seed = amount("skew", skew), whole("seed", seed, 0)
    if k > experts:
        raise ValueError(f"k is {k}, must be at most experts = {experts}")
    few(max(tokens, 1) * experts, "draws", tokens=tokens, experts=experts)
    dice, counts = random.Random(seed), [0] * experts
    logs = [-skew * log(i + 1) for i in range(experts)]
    if k == 1:
        odds = list(accumulate(map(exp, logs)))
        for one in dice.choices(range(experts), cum_weights=odds, k=tokens):
            counts[one] += 1
        return tuple(counts)
    for _ in range(tokens):  # the k largest of log odds and Gumbel noise
        noisy = ((odd - log(dice.expovariate(1) or 1e-300), i) for i, odd in enumerate(logs))
        for _, one in heapq.nlargest(k, noisy):
            counts[one] += 1
    return tuple(counts)


def _above(n: int, p: float, most: int) -> float:
    """The mean of max(0, X - most) for X binomial (n, p), by its shorter tail."""
    if most >= n or p >= 1:
        return max(0.0, n * min(p, 1.0) - most)
    up = most >= n * p
    x, step = (most + 1, 1) if up else (most - 1, -1)
    total, odds = 0.0, p / (1 - p)
    if not 0 <= x <= n:
        return n * p - most
    term = exp(lgamma(n + 1) - lgamma(x + 1) - lgamma(n - x + 1) + x * log(p) + (n - x) * log1p(-p))
    while 0 <= x <= n and term > 1e-17 * total:
        total += abs(x - most) * term
        term *= (n - x) / (x + 1) * odds if up else x / (n - x + 1) / odds
        x += step
    return total if up else n * p - most + total
