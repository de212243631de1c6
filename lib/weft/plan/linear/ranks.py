"""What ranks that share a sequence tell each other: a state, however many tokens each of them has.

All tokens of a rank together change the state as one does: S -> A S + B. B is a state; A is a
number for each head, one for each channel of the key, a matrix with the delta rule, and nothing
where the state does not fade. Both follow from a rank's own tokens, before any message.

    scan     rank r receives S, and sends A S + B to rank r + 1
    gather   every rank gets the A and B of all, and puts together those before it

Backward is the same in the other direction, with A^T in place of A and the state's gradients.
"""

from typing import SupportsIndex

from weft.plan.arguments import chosen, sizes, whole

METHODS = ("scan", "gather")
FACTORS = {  # what A is in each head -> how many numbers that are, with keys of width K
    "none": lambda K: 0,
    "head": lambda K: 1,
    "channel": lambda K: K,
    "delta": lambda K: K * K,
}
# The small decoder's rules, and what A is in each of them.
DECODER_RULES = {"linear": "none", "decay": "head", "gate": "head", "delta": "delta"}
DECODER_RULES |= {"gated_delta": "delta"}


def sent(
    n: SupportsIndex,
    rank: SupportsIndex,
    B: SupportsIndex,
    H: SupportsIndex,
    K: SupportsIndex,
    V: SupportsIndex,
    factor: str = "none",
    method: str = "scan",
    size: SupportsIndex = 4,
    backward: bool = False,
) -> int:
    """Bytes that one of n ranks sends in forward, or in backward alone; T is not among them.

    `factor` is what A is, one of FACTORS, and `size` the bytes of a number of the state. In a
    scan the last rank has nobody to send to, the first in backward. A gather goes round a ring;
    in backward everybody has the factors already, and only gradients go round.

    >>> [sent(4, rank, 1, 32, 128, 128) >> 20 for rank in range(4)]
    [2, 2, 2, 0]
    >>> sent(4, 0, 1, 32, 128, 128, "delta", "gather") >> 20
    12
    """
    n, B, H, K, V, size = sizes(n=n, B=B, H=H, K=K, V=V, size=size)
    rank = whole("rank", rank, least=0, most=n - 1)
    chosen("factor", factor, FACTORS)
    state, factors = B * H * K * V * size, B * H * FACTORS[factor](K) * size
    if chosen("method", method, METHODS) == "gather":
        return (n - 1) * (state if backward else state + factors)
    return state * (rank != (0 if backward else n - 1))


def sent_by_ring(
    n: SupportsIndex,
    T: SupportsIndex,
    G: SupportsIndex,
    K: SupportsIndex,
    V: SupportsIndex,
    size: SupportsIndex = 2,
) -> int:
    """Bytes that one rank of ring attention sends for the same: its keys and values, n - 1 times.

    >>> sent_by_ring(8, T=131072, G=8, K=128, V=128) / 2**20
    448.0
    """
    n, T, G, K, V, size = sizes(n=n, T=T, G=G, K=K, V=V, size=size)
    if n > T:
        raise ValueError(f"T is {T}, must be at least n = {n}, a token for each rank")
    return (n - 1) * -(-T // n) * G * (K + V) * size


def same_as_ring(
    H: SupportsIndex,
    K: SupportsIndex,
    V: SupportsIndex,
    G: SupportsIndex | None = None,
    factor: str = "none",
    size: SupportsIndex = 4,
    cache: SupportsIndex = 2,
) -> float:
    """The tokens on each rank at which both send as much: more, and states are the smaller.

    A gather of states beside a ring of keys and values, both n - 1 times, so the number of
    ranks falls out; `cache` is the bytes of a number of those.

    >>> same_as_ring(H=32, K=128, V=128, G=8)
    512.0
    """
    H, K, V, size, cache = sizes(H=H, K=K, V=V, size=size, cache=cache)
    G = H if G is None else whole("G", G)
    return sent(2, 0, 1, H, K, V, factor, "gather", size) / (G * (K + V) * cache)
