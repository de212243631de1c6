"""Decays that are constants, one for each head."""

from collections.abc import Sequence
from typing import Any

from weft.plan.arguments import few, number, row, whole


def DECAYS(H: int) -> list[float]:
    """RetNet's decays, 1 - 2^(-5 - i) for head i of H. Sun et al. 2023, section 2.2."""
    few(whole("H", H), "heads", H=H)
    return [1 - 2.0 ** (-5 - i) for i in range(H)]


def checked_decays(decay: Sequence[float] | Any | None, H: int) -> list[float]:
    """A number in (0, 1] for each of H heads, DECAYS(H) where none are given."""
    decays = DECAYS(H) if decay is None else [number("decay", x) for x in row("decay", decay)]
    if len(decays) != H:
        raise ValueError(f"decay has {len(decays)} numbers, must have one for each of H = {H}")
    for each in decays:
        if not 0 < each <= 1:
            raise ValueError(f"decay has {each}, must lie in (0, 1]")
    return decays
