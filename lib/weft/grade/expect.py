"""What a graded test says when an answer is wrong: the case, what was expected, what came."""

from typing import Any


def expect(case: str, got: Any, expected: Any, within: float = 0.0) -> None:
    """Raise AssertionError naming the case, expected beside got, unless the two are equal.

    `within` is an absolute tolerance for numbers. Cases should come smallest first, so that the
    one that is named is the smallest that fails.

    >>> expect("bubble(p=4, m=8)", got=0.375, expected=3 / 11)
    Traceback (most recent call last):
    AssertionError: bubble(p=4, m=8): expected 0.272727, got 0.375
    """
    number = isinstance(got, int | float) and not isinstance(got, bool)
    if within and number:
        equal = abs(got - expected) <= within
    else:
        equal = got == expected
    if not equal:
        raise AssertionError(f"{case}: expected {_short(expected)}, got {_short(got)}")


def at_most(case: str, got: float, most: float) -> None:
    """Raise AssertionError naming the case, the limit and what came, if it is above the limit.

    >>> at_most("live microbatches of rank 3", got=8, most=1)
    Traceback (most recent call last):
    AssertionError: live microbatches of rank 3: expected at most 1, got 8
    """
    if not isinstance(got, int | float) or not got <= most:
        raise AssertionError(f"{case}: expected at most {_short(most)}, got {_short(got)}")


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
