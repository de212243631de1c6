"""One sequence over n ranks: a state is sent on, where ring attention sends keys and values.

The chunks of a rank take a state S to M S + N. Each rank computes its own M and N at once, from
its own tokens; then states go from rank to rank. M is a number for a head with a scalar decay and
a vector for one by channel, both too few to count; the delta rule makes it a K x K matrix.
"""

from weft.plan.arguments import chosen, sizes, whole
from weft.plan.linear.forms import RULES, STATE

WAYS = ("chain", "gather")


def sent(
    n: int,
    H: int,
    K: int,
    V: int,
    size: int = STATE,
    rule: str = "plain",
    way: str = "gather",
) -> int:
    """Bytes that one rank sends in the forward pass of one layer and sequence: T is not in it.

    "chain" hands the state on, rank after rank, n - 1 hops that wait for each other. "gather"
    is an all-gather of every rank's N, and of its M for the delta rule: a ring sends n - 1
    of them, at once, and each rank then puts those before it together. Sun et al. 2025 (LASP-2).

    >>> sent(8, H=32, K=128, V=128, way="chain") / 2**20, sent(8, H=32, K=128, V=128) / 2**20
    (2.0, 14.0)
    """
    n, H, K, V, size = sizes(n=n, H=H, K=K, V=V, size=size)
    delta = chosen("rule", rule, RULES) == "delta"
    if chosen("way", way, WAYS) == "chain":
        return H * K * V * size if n > 1 else 0
    return (n - 1) * H * K * (V + delta * K) * size


def sent_by_ring(n: int, T: int, G: int, K: int, V: int, size: int = 2) -> int:
    """Bytes that one rank of ring attention sends for the same: its keys and values, n - 1 times.

    >>> sent_by_ring(8, T=131072, G=8, K=128, V=128) / 2**20
    448.0
    """
    n, T, G, K, V, size = sizes(n=n, T=T, G=G, K=K, V=V, size=size)
    if n > T:
        raise ValueError(f"T is {T}, must be at least n = {n}, a token for each rank")
    return (n - 1) * -(-T // n) * G * (K + V) * size


def same_as_ring(
    n: int,
    H: int,
    K: int,
    V: int,
    G: int | None = None,
    size: int = STATE,
    cache: int = 2,
    rule: str = "plain",
) -> float:
    """The tokens on each rank at which both send as much: more, and states are the smaller.

    An all-gather of states beside a ring of keys and values, both n - 1 times, so the number of
    ranks falls out; for K = V it is `same_as_cache`'s length, and twice that for the delta rule.

    >>> same_as_ring(8, H=32, K=128, V=128, G=8)
    512.0
    """
    n, H, K, V, size, cache = sizes(n=n, H=H, K=K, V=V, size=size, cache=cache)
    G = H if G is None else whole("G", G)
    two = max(n, 2)  # one rank sends nothing either way
    return sent(two, H, K, V, size, rule) / ((two - 1) * G * (K + V) * cache)
