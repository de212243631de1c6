"""What a caller gives, as Python's own numbers: those of numpy and torch are welcome too."""

from operator import index
from typing import Any, SupportsIndex


def plain(value: Any) -> Any:
    """The numbers and arrays of numpy and torch as Python's own; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def whole(name: str, value: SupportsIndex, least: int = 1) -> int:
    """A whole number of at least `least`; ValueError names what it is for: a float is none.

    A bool is none either.

    >>> whole("p", 4), whole("tokens", 0, least=0)
    (4, 0)
    """
    value = plain(value)
    try:
        number = least - 1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} is {value!r}, must be a whole number of at least {least}")
    return number


def sizes(**given: SupportsIndex) -> tuple[int, ...]:
    """Sizes, each `whole` and at least 1, in the order in which they are given.

    >>> sizes(p=4, m=8)
    (4, 8)
    """
    return tuple(whole(name, value) for name, value in given.items())


def total(name: str, value: Any) -> int:
    """A large number of things, at least 1 and `whole`, which may be written as 7.5e9.

    >>> total("params", 7.5e9)
    7500000000
    """
    value = plain(value)
    return whole(name, int(value) if isinstance(value, float) and value.is_integer() else value)
