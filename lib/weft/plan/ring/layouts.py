"""Who holds which tokens of a sequence that lies over n ranks.

    contiguous   n pieces, one after the other
    zigzag       2n pieces; rank r holds pieces r and 2n - 1 - r, as of a strip folded in the middle
    striped      token i lies on rank i mod n

Where T does not divide, the first pieces are one token longer, as torch.tensor_split cuts.
"""

from itertools import chain, pairwise
from typing import SupportsIndex

from weft.plan.arguments import chosen, few, sizes

LAYOUTS = ("contiguous", "zigzag", "striped")
Spans = tuple[range, ...]  # the tokens of one rank, ascending, as few ranges


def positions(T: SupportsIndex, n: SupportsIndex, layout: str) -> tuple[tuple[int, ...], ...]:
    """The positions of the tokens that each rank holds, ascending: every token is on one rank.

    >>> positions(8, 2, "zigzag")
    ((0, 1, 6, 7), (2, 3, 4, 5))
    >>> positions(7, 3, "striped")
    ((0, 3, 6), (1, 4), (2, 5))
    """
    T, n = checked(T, n)
    few(T, "positions", T=T)
    return tuple(tuple(chain(*spans)) for spans in held(T, n, layout))


def held(T: SupportsIndex, n: SupportsIndex, layout: str) -> tuple[Spans, ...]:
    """What each rank holds, as ranges: one of them, with zigzag two where there are as many.

    >>> held(8, 2, "zigzag")
    ((range(0, 2), range(6, 8)), (range(2, 4), range(4, 6)))
    """
    T, n = checked(T, n)
    chosen("layout", layout, LAYOUTS)
    if layout == "striped":
        return tuple((range(rank, T, n),) for rank in range(n))
    if layout == "contiguous":
        return tuple((piece,) for piece in _pieces(T, n))
    pieces = _pieces(T, 2 * n)
    folded = ((pieces[rank], pieces[2 * n - 1 - rank]) for rank in range(n))
    return tuple(tuple(piece for piece in both if piece) for both in folded)


def lengths(T: SupportsIndex, n: SupportsIndex, layout: str) -> list[int]:
    """How many tokens each rank holds.

    >>> lengths(7, 3, "contiguous"), lengths(11, 3, "zigzag")
    ([3, 2, 2], [3, 4, 4])
    """
    return [sum(map(len, spans)) for spans in held(T, n, layout)]


def checked(T: SupportsIndex, n: SupportsIndex) -> tuple[int, int]:
    """T and n, if every rank gets a token; else ValueError."""
    T, n = sizes(T=T, n=n)
    if n > T:
        raise ValueError(f"n is {n}, must be at most T = {T}: a token for each rank")
    return T, n


def _pieces(T: int, count: int) -> list[range]:
    length, longer = divmod(T, count)
    starts = [i * length + min(i, longer) for i in range(count + 1)]
    return [range(*ends) for ends in pairwise(starts)]
