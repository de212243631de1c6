"""Windows and global tokens: which pairs of query and key are seen, and which blocks hold any.

Query i sees key j where i - j is a multiple of `dilation` and at most `window` of them away, on
both sides unless it is causal. The first `globals` tokens see all and are seen by all.
"""

from typing import Any

from weft.plan.arguments import few, sizes, whole
from weft.plan.attention import Sizes, check
from weft.plan.tensors import dtype_of, tensor


def pairs(T: int, window: int, dilation: int = 1, globals: int = 0, causal: bool = False) -> int:
    """How many pairs of query and key are seen among T tokens.

    The global tokens' rows and columns are whole; the others are a sequence of their own, in
    which a distance of x is found n - x times. Beltagy et al. 2020, section 3.1.

    >>> pairs(8, window=1), pairs(8, window=1, causal=True), pairs(8, window=8)
    (22, 15, 64)
    """
    T, window, dilation, globals = _checked(T, window, dilation, globals)
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
    T, window, dilation, globals = _checked(T, window, dilation, globals)
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


def _checked(T: int, window: int, dilation: int, globals: int) -> tuple[int, int, int, int]:
    T, dilation = sizes(T=T, dilation=dilation)
    window, globals = whole("window", window, 0), whole("globals", globals, 0)
    if globals > T:
        raise ValueError(f"globals is {globals}, must be at most T = {T}")
    return T, window, dilation, globals


# --- what every form of it accepts ----------------------------------------------------------------


def check_longformer(
    q: Any, k: Any, v: Any, window: int, dilation: int = 1, scale: Any = None,
    global_mask: Any = None, global_q: Any = None, global_k: Any = None, global_v: Any = None,
) -> tuple[Sizes, int, int]:  # fmt: skip
    """Sizes, window and dilation, or what is wrong, for weft.ref.sparse and the kernels.

    As many keys as queries, in windows of at least 0 keys on a side; a mask [B, T] in bool; what
    is given for global tokens is shaped like what it replaces. ValueError names the argument.
    """
    found = check(q, k, v, None, scale)
    window, (dilation,) = whole("window", window, 0), sizes(dilation=dilation)
    if found.S != found.T:
        raise ValueError(f"k has {found.S} keys, must have q's {found.T}")
    for name, ours, other in (("q", global_q, q), ("k", global_k, k), ("v", global_v, v)):
        if ours is not None:
            alike = {"dtypes": (dtype_of(other),), "beside": (name, other)}
            tensor(f"global_{name}", ours, f"that of {name}", other.shape, **alike)
    if global_mask is not None:
        shape = found.B, found.T
        tensor("global_mask", global_mask, "[B, T] of q", shape, dtypes=("bool",), beside=("q", q))
    return found, window, dilation


def check_layout(q: Any, k: Any, v: Any, layout: Any, block: int, scale: Any) -> tuple[Sizes, int]:
    """Sizes and block, or what is wrong: a layout in bool with a row for each block of queries."""
    found = check(q, k, v, None, scale)
    (block,) = sizes(block=block)
    rows, columns = -(-found.T // block), -(-found.S // block)
    dims = f"[H or 1, T / block, S / block] with block = {block}"
    shapes = (found.H, rows, columns), (1, rows, columns)
    tensor("layout", layout, dims, *shapes, dtypes=("bool",), beside=("q", q))
    return found, block
