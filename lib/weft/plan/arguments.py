"""What a caller gives, as Python's own numbers: those of numpy and torch are welcome too."""

from operator import index
from typing import Any, SupportsIndex


def plain(value: Any) -> Any:
    """The numbers and arrays of numpy and torch as Python's own; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def sizes(**given: SupportsIndex) -> tuple[int, ...]:
    """Sizes, each a whole number of at least 1, in the order in which they are given.

    ValueError names the one that is not: a float is none, and neither is a bool.

    >>> sizes(p=4, m=8)
    (4, 8)
    """
    return tuple(_whole(name, plain(value), 1) for name, value in given.items())


def counts(**given: SupportsIndex) -> tuple[int, ...]:
    """Counts, each a whole number of at least 0, as `sizes` takes those of at least 1.

    >>> counts(tokens=0)
    (0,)
    """
    return tuple(_whole(name, plain(value), 0) for name, value in given.items())


def totals(**given: Any) -> tuple[int, ...]:
    """Large numbers of things, which may be written as 7.5e9, each whole and at least 1.

    >>> totals(params=7.5e9)
    (7500000000,)
    """
    numbers = {name: plain(value) for name, value in given.items()}
    whole = {k: int(n) for k, n in numbers.items() if isinstance(n, float) and n.is_integer()}
    return sizes(**(numbers | whole))


def _whole(name: str, value: Any, least: int) -> int:
    try:
        whole = least - 1 if isinstance(value, bool) else index(value)
    except TypeError:
        whole = least - 1
    if whole < least:
        raise ValueError(f"{name} is {value!r}, must be a whole number of at least {least}")
    return whole
