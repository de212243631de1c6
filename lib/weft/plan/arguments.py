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
    return tuple(_size(name, plain(value)) for name, value in given.items())


def _size(name: str, value: Any) -> int:
    try:
        whole = 0 if isinstance(value, bool) else index(value)
    except TypeError:
        whole = 0
    if whole < 1:
        raise ValueError(f"{name} is {value!r}, must be a whole number of at least 1")
    return whole
