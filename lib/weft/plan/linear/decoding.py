"""Decoding with a state beside decoding with a KV cache: what is kept, and what a token moves."""

from weft.plan.arguments import chosen, sizes, whole
from weft.plan.linear.forms import RULES, STATE
from weft.plan.roofline import Work


def state_bytes(H: int, K: int, V: int, layers: int = 1, size: int = STATE) -> int:
    """Bytes of one sequence's states, however long it is.

    >>> state_bytes(H=32, K=128, V=128) / 2**20
    2.0
    """
    H, K, V, layers, size = sizes(H=H, K=K, V=V, layers=layers, size=size)
    return layers * H * K * V * size


def next_token(H: int, K: int, V: int, size: int = STATE, rule: str = "plain") -> Work:
    """The work of one more token in one layer: each state is read, changed, written, and asked.

    q, k, v and o are few beside it and not counted. 4 K V FLOPs a head, 6 with the delta rule,
    for 2 K V elements moved: at 4 bytes half a FLOP per byte, and a batch does not raise it,
    for every sequence has a state of its own.

    >>> next_token(H=32, K=128, V=128).intensity
    0.5
    """
    H, K, V, size = sizes(H=H, K=K, V=V, size=size)
    through = 6 if chosen("rule", rule, RULES) == "delta" else 4
    return Work(through * H * K * V, 2 * H * K * V * size)


def same_as_cache(
    H: int,
    K: int,
    V: int,
    G: int | None = None,
    size: int = STATE,
    cache: int = 2,
    moved: bool = False,
) -> float:
    """The length at which a KV cache with G heads as wide is as large as the states.

    The cache keeps G (K + V) elements of `cache` bytes a token, the states H K V of `size`. With
    `moved` the length at which a step moves as much: the cache is read, the states are read and
    written, so twice it. With G = H, K = V, and fp32 beside bf16 it is K tokens.

    >>> same_as_cache(H=32, K=128, V=128), same_as_cache(H=32, K=128, V=128, G=8)
    (128.0, 512.0)
    """
    H, K, V, size, cache = sizes(H=H, K=K, V=V, size=size, cache=cache)
    G = H if G is None else whole("G", G)
    return (1 + bool(moved)) * H * K * V * size / (G * (K + V) * cache)
