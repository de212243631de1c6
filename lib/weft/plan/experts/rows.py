"""Rows of an expert: how many make it bound by compute, how many a tile wastes, who is touched."""

from collections.abc import Sequence
from math import expm1, log1p

from weft.plan.arguments import row, sizes, whole


def touched(tokens: int, experts: int, k: int = 1) -> float:
    """How many experts have any of the tokens, on average, if all are as likely.

    >>> f"{touched(1, 256, k=8):.0f}", f"{touched(64, 256, k=8) / 256:.0%}"
    ('8', '87%')
    """
    tokens, (experts, k) = whole("tokens", tokens, 0), sizes(experts=experts, k=k)
    if k > experts:
        raise ValueError(f"k is {k}, must be at most experts = {experts}")
    if k == experts:
        return float(experts * bool(tokens))
    return -experts * expm1(tokens * log1p(-k / experts))


def wasted_rows(counts: Sequence[int], tile: int) -> int:
    """Rows of tiles that no token fills: each expert's last tile is as large as the others.

    Half a tile for each expert, if loads are large and of any remainder.

    >>> wasted_rows([130, 0, 128, 1], tile=128)
    253
    """
    (tile,) = sizes(tile=tile)
    return sum(-whole("counts", count, 0) % tile for count in row("counts", counts, empty=True))


def least_tokens(experts: int, k: int, rows: int) -> int:
    """Tokens that give an expert so many rows, on average: rows E / k, rounded up.

    >>> least_tokens(256, k=8, rows=206)
    6592
    """
    experts, k, rows = sizes(experts=experts, k=k, rows=rows)
    if k > experts:
        raise ValueError(f"k is {k}, must be at most experts = {experts}")
    return -(-rows * experts // k)
