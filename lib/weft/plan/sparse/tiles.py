"""From pairs to blocks: which squares of the score matrix a window touches, and what is wasted."""

from weft.plan.arguments import few, sizes
from weft.plan.sparse.pairs import check_window, pairs


def blocks(
    T: int, block: int, window: int, dilation: int = 1, globals: int = 0, causal: bool = False
) -> set[tuple[int, int]]:
    """The blocks (row, column) of `block` queries and keys in which a pair is seen.

    The last row and column have what is left of T.

    >>> sorted(blocks(T=8, block=4, window=1))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    >>> len(blocks(T=4096, block=128, window=127, causal=True))
    63
    """
    T, window, dilation, globals = check_window(T, window, dilation, globals)
    (block,) = sizes(block=block)
    few((-(-T // block)) ** 2, "blocks", T=T, block=block)
    starts = range(0, T, block)

    def seen(first_query: int, first_key: int) -> bool:
        last_query, last_key = (min(x + block, T) - 1 for x in (first_query, first_key))
        if min(first_query, first_key) < globals and (not causal or first_key <= last_query):
            return True
        # The distances i - j in this block, and whether a step of the window is among them.
        least = max(first_query - last_key, 0 if causal else -window * dilation)
        most = min(last_query - first_key, window * dilation)
        return least <= most and most // dilation * dilation >= least

    rows = [(r, c) for r in range(len(starts)) for c in range(len(starts))]
    return {(r, c) for r, c in rows if seen(starts[r], starts[c])}


def touched(
    T: int, block: int, window: int, dilation: int = 1, globals: int = 0, causal: bool = False
) -> int:
    """How many blocks `blocks` lists, counted along diagonals, on which whole blocks are alike.

    >>> touched(T=4096, block=128, window=127, causal=True)
    63
    """
    T, window, dilation, globals = check_window(T, window, dilation, globals)
    (block,) = sizes(block=block)
    n, first = -(-T // block), -(-globals // block)
    inner = n - first  # rows, and columns, of blocks without a global token
    ends = T - (n - 1) * block  # queries in the last row of blocks
    diagonals = min(inner, window * dilation // block + 2)
    few(diagonals, "diagonals", T=T, block=block, window=window)

    def seen(below: int, queries: int) -> bool:
        least, most = (below - 1) * block + 1, min(below * block + queries - 1, window * dilation)
        return most // dilation * dilation >= least

    lower = 0
    for below in range(1, diagonals):
        lower += (inner - below - 1) * seen(below, block) + seen(below, ends)
    if causal:
        return first * n - first * (first - 1) // 2 + inner + lower
    return n * n - inner * inner + inner + 2 * lower


def waste(
    T: int, block: int, window: int, dilation: int = 1, globals: int = 0, causal: bool = False
) -> float:
    """Scores that a kernel computes in the blocks it touches, for each pair that is seen.

    In the middle of a long causal sequence a row of blocks touches 1 + ceil(window / block) of
    them, of `block` keys each, and a query sees window + 1.

    >>> waste(T=131072, block=128, window=127, causal=True) > 1.99
    True
    """
    given = T, window, dilation, globals, causal
    return touched(T, block, *given[1:]) * block**2 / pairs(*given)
