"""Mixture of experts: how many tokens an expert takes, how many are dropped, what is sent."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

from weft.plan.arguments import positive, row, sizes, whole
from weft.plan.tensors import dtype_of, ranked, tensor

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


def sent(tokens: int, width: int, e: int, k: int = 1, size: int = 2) -> float:
    """Bytes that one of e expert ranks sends for its own `tokens`, at even load.

    A row of `width` numbers goes to the expert of each of its k choices and comes back: the rank
    sends k tokens rows to others' experts, less those that stay, and as many results. A rank
    that has several of a token's experts is sent it several times.

    >>> sent(tokens=1024, width=512, e=8)
    1835008
    """
    tokens = whole("tokens", tokens, 0)
    width, e, k, size = sizes(width=width, e=e, k=k, size=size)
    total = 2 * k * tokens * width * size * (e - 1)
    return total / e if total % e else total // e


# --- what kernels and references accept -----------------------------------------------------------


def check_grouped(x: Any, w: Any, sizes: Any) -> None:
    """x [tokens, D], w [E, D, F] of one dtype on one device, sizes [E] whole; or what is wrong."""
    _, D = ranked("x", x, "tokens D", empty="tokens")
    E, _, F = ranked("w", w, "E D F")
    tensor("w", w, "[E, D, F] with x's D", (E, D, F), dtypes=(dtype_of(x),), beside=("x", x))
    tensor("sizes", sizes, "[E] of w", (E,), dtypes=("int32", "int64"), beside=("x", x))


def check_mlp(x: Any, expert: Any, weight: Any, kept: Any, up: Any, down: Any) -> None:
    """x [tokens, D], routes [tokens, k] as `route` gives them, up [E, D, F], down [E, F, D]."""
    check_matrices(x, up, down)
    T = x.shape[0]
    k = (*getattr(expert, "shape", ()), 1, 1)[1]
    for name, value, dtypes in (
        ("expert", expert, ("int64",)),
        ("weight", weight, ("float32", "float64")),
        ("kept", kept, ("bool",)),
    ):
        tensor(name, value, "[tokens, k] of x", (T, k), dtypes=dtypes, beside=("x", x))


def check_matrices(x: Any, up: Any, down: Any) -> tuple[int, int, int]:
    """E, D and F of the experts' two matrices, which have x's width, dtype and device."""
    _, D = ranked("x", x, "tokens D", empty="tokens")
    E, _, F = ranked("up", up, "E D F")
    alike = {"dtypes": (dtype_of(x),), "beside": ("x", x)}
    tensor("up", up, "[E, D, F] with x's D", (E, D, F), **alike)
    tensor("down", down, "[E, F, D] of up", (E, F, D), **alike)
    return E, D, F
