"""Windows and global tokens: which pairs of query and key are seen, and how far layers reach.

Query i sees key j where i - j is a multiple of `dilation` and at most `window` of them away, on
both sides unless it is causal. The first `globals` tokens see all and are seen by all.
"""

from collections.abc import Sequence

from weft.plan.arguments import few, row, sizes, whole


def pairs(T: int, window: int, dilation: int = 1, globals: int = 0, causal: bool = False) -> int:
    """How many pairs of query and key are seen among T tokens.

    The global tokens' rows and columns are whole; the others are a sequence of their own, in
    which a distance of x is found n - x times. Beltagy et al. 2020, section 3.1.

    >>> pairs(8, window=1), pairs(8, window=1, causal=True), pairs(8, window=8)
    (22, 15, 64)
    """
    T, window, dilation, globals = check_window(T, window, dilation, globals)
    n = T - globals
    steps = min(window, max(n - 1, 0) // dilation)  # of a window that stay inside
    one_side = steps * n - dilation * steps * (steps + 1) // 2
    if causal:
        return globals * (globals + 1) // 2 + n * globals + n + one_side
    return globals * T + n * globals + n + 2 * one_side


def reach(layers: int, window: int, dilation: int = 1) -> int:
    """How many tokens to one side a token can have heard of after so many layers, at most.

    >>> reach(layers=12, window=256)
    3072
    """
    return whole("layers", layers, 0) * whole("window", window, 0) * whole("dilation", dilation)


def spread(layers: Sequence[tuple[int, int]]) -> dict[int, float]:
    """How much of each distance back reaches a token's output, if every layer weighs keys equally.

    `layers` are (window, dilation), from the first on, causal; the shares sum to 1. A distance that
    no chain of windows makes is not there. After many layers of one window this is a bell around
    half of the reach: its ends are reached by one path of very many.

    >>> spread([(1, 1), (1, 1)])
    {0: 0.25, 1: 0.5, 2: 0.25}
    >>> sorted(spread([(1, 2)] * 3))
    [0, 2, 4, 6]
    """
    layers = [_layer(f"layers[{i}]", one) for i, one in enumerate(row("layers", layers))]
    few(sum(w * d for w, d in layers) * max(w + 1 for w, _ in layers), "paths", layers=layers)
    shares = {0: 1.0}
    for window, dilation in layers:
        after: dict[int, float] = {}
        for back, share in shares.items():
            for step in range(window + 1):
                at = back + step * dilation
                after[at] = after.get(at, 0.0) + share / (window + 1)
        shares = after
    return dict(sorted(shares.items()))


def _layer(name: str, given: tuple[int, int]) -> tuple[int, int]:
    given = row(name, given)
    if len(given) != 2:
        raise ValueError(f"{name} is {given}, must be a window and a dilation")
    return whole(f"{name}[0]", given[0], 0), whole(f"{name}[1]", given[1])


def check_window(T: int, window: int, dilation: int, globals: int) -> tuple[int, int, int, int]:
    """Tokens, window, dilation and global tokens, or what is wrong with one of them."""
    T, dilation = sizes(T=T, dilation=dilation)
    window, globals = whole("window", window, 0), whole("globals", globals, 0)
    if globals > T:
        raise ValueError(f"globals is {globals}, must be at most T = {T}")
    return T, window, dilation, globals
