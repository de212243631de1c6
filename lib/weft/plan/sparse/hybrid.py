"""Models in which windowed layers and full ones take turns: what is left of cache and pairs."""

from weft.plan.arguments import sizes, whole
from weft.plan.sparse.pairs import pairs


def cache_share(T: int, keys: int, local: int, full: int = 1) -> float:
    """What is kept of a full cache, if `local` of local + full layers keep the last `keys` alone.

    >>> f"{cache_share(131072, keys=1024, local=5):.0%}", f"{cache_share(131072, 128, local=1):.0%}"
    ('17%', '50%')
    """
    T, keys, local, full = _checked(T, keys, local, full)
    return (local * min(T, keys) + full * T) / ((local + full) * T)


def pair_share(T: int, keys: int, local: int, full: int = 1) -> float:
    """What is left of the pairs of a causal prompt, if `local` layers see `keys` keys a query.

    >>> f"{pair_share(131072, keys=1024, local=5):.0%} {pair_share(8192, keys=1024, local=5):.0%}"
    '18% 36%'
    """
    T, keys, local, full = _checked(T, keys, local, full)
    seen, all_seen = pairs(T, keys - 1, causal=True), T * (T + 1) // 2
    return (local * seen + full * all_seen) / ((local + full) * all_seen)


def _checked(T: int, keys: int, local: int, full: int) -> tuple[int, int, int, int]:
    T, keys = sizes(T=T, keys=keys)
    local, full = whole("local", local, 0), whole("full", full, 0)
    if local + full == 0:
        raise ValueError("local and full are 0, must be one layer at least")
    return T, keys, local, full
