"""What each rank computes in each step of a ring, and how long the others wait for the busiest.

In step s a rank has the keys of the rank s places before it. Causal queries see few of the keys of
ranks that hold later tokens, so it matters which tokens a rank holds.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import SupportsIndex

from weft.plan.arguments import chosen, few
from weft.plan.ring.layouts import LAYOUTS, checked, held
from weft.plan.ring.visible import Visibility, pairs

Work = tuple[tuple[int, ...], ...]  # rows over ranks of pairs, step by step


def work(
    T: SupportsIndex,
    n: SupportsIndex,
    layout: str,
    causal: bool = True,
    window: SupportsIndex | None = None,
    documents: Sequence[SupportsIndex] | None = None,
) -> Work:
    """Pairs of a query and a key that each rank computes at each of the n steps.

    >>> for row in work(8, 4, "contiguous"): print(*row)
    3 0 0 0
    3 4 0 0
    3 4 4 0
    3 4 4 4
    >>> for row in work(8, 4, "zigzag"): print(*row)
    3 2 2 2
    3 2 2 2
    3 2 2 2
    3 2 2 2
    """
    T, n = checked(T, n)
    few(n * n, "steps of all ranks", n=n)
    see = Visibility(causal, window, documents)
    see.check_length(T)
    return _work(T, n, chosen("layout", layout, LAYOUTS), see)


@lru_cache(maxsize=64)
def _work(T: int, n: int, layout: str, see: Visibility) -> Work:
    parts = held(T, n, layout)
    return tuple(
        tuple(pairs(parts[rank], parts[(rank - step) % n], see) for step in range(n))
        for rank in range(n)
    )


def efficiency(
    T: SupportsIndex,
    n: SupportsIndex,
    layout: str,
    causal: bool = True,
    window: SupportsIndex | None = None,
    documents: Sequence[SupportsIndex] | None = None,
) -> float:
    """The share of a step that a rank computes, and does not wait for the busiest: mean of steps.

    Each step counts alike, as where a masked block takes as long as a whole one. Steps in which
    nobody has anything to do are none.

    >>> efficiency(1024, 4, "contiguous"), efficiency(1024, 4, "zigzag")
    (0.625, 1.0)
    """
    rows = work(T, n, layout, causal, window, documents)
    steps = [step for step in zip(*rows, strict=True) if any(step)]
    shares = [sum(step) / (len(step) * max(step)) for step in steps]
    return sum(shares) / len(shares)


def even_efficiency(T: SupportsIndex, n: SupportsIndex, layout: str) -> float:
    """The same in closed form, causal, where T divides by n, and with zigzag by 2n.

    (n + 1) / (2n) for contiguous parts: in step s only n - s ranks work. 1 for zigzag: half of
    all pairs of two blocks, whichever they are. 1 - (n - 1) / (T + n) for stripes: a diagonal
    more or less.

    >>> even_efficiency(2**20, 8, "contiguous"), round(even_efficiency(2**20, 8, "striped"), 6)
    (0.5625, 0.999993)
    """
    T, n = checked(T, n)
    chosen("layout", layout, LAYOUTS)
    divisor = 2 * n if layout == "zigzag" else n
    if T % divisor:
        raise ValueError(f"T is {T}, must be a multiple of {divisor} for {layout}")
    if layout == "contiguous":
        return (n + 1) / (2 * n)
    return 1.0 if layout == "zigzag" else 1 - (n - 1) / (T + n)


def longest_path(
    T: SupportsIndex,
    n: SupportsIndex,
    layout: str,
    causal: bool = True,
    window: SupportsIndex | None = None,
    documents: Sequence[SupportsIndex] | None = None,
) -> int:
    """Pairs of the busiest rank of each step, summed: how long a pass takes that is in step.

    Where a kernel skips what is masked, the first step is half as long as a later one of the
    contiguous ring, so zigzag is (2n - 1) / n times as fast and not 2n / (n + 1).

    >>> round(longest_path(2**20, 4, "contiguous") / longest_path(2**20, 4, "zigzag"), 3)
    1.75
    """
    return sum(map(max, zip(*work(T, n, layout, causal, window, documents), strict=True)))
