"""Which tensors the forms of linear attention take; each says the same of the same mistake."""

from math import inf
from typing import Any, NamedTuple

from weft.plan.arguments import whole
from weft.plan.tensors import accumulator, between, dtype_of, ranked, tensor


class StateSizes(NamedTuple):
    """Batch, time, heads, key width, value width."""

    B: int
    T: int
    H: int
    K: int
    V: int


def check(q: Any, k: Any, v: Any) -> StateSizes:
    """Sizes of q and k [B, T, H, K] and v [B, T, H, V], or what is wrong; T may be 0."""
    B, T, H, K = ranked("q", q, "B T H K", empty="T")
    *_, V = ranked("v", v, "B T H V", empty="T")
    alike = {"dtypes": (dtype_of(q),), "beside": ("q", q)}
    tensor("k", k, "[B, T, H, K] as q", (B, T, H, K), **alike)
    tensor("v", v, "[B, T, H, V] with q's B, T and H", (B, T, H, V), **alike)
    return StateSizes(B, T, H, K, V)


def check_per_token(
    name: str,
    value: Any,
    q: Any,
    least: float = -inf,
    most: float = 0.0,
    per_channel: bool = False,
    look: bool = True,
) -> None:
    """A number for each token and head, [B, T, H], or each channel of its key as well.

    All lie between `least` and `most`, unless nobody is to `look`; the dtype may be another than
    q's.
    """
    if per_channel:
        tensor(name, value, "[B, T, H] or [B, T, H, K] of q", q.shape[:3], q.shape, beside=("q", q))
    else:
        tensor(name, value, "[B, T, H] of q", q.shape[:3], beside=("q", q))
    if look:
        between(name, value, least, most)


def check_state(name: str, value: Any, dims: str, wanted: tuple[int, ...], q: Any) -> None:
    """A state in the dtype that forms compute in, which is at least fp32."""
    tensor(name, value, dims, wanted, dtypes=(accumulator(q),), beside=("q", q))


def check_chunk(chunk: Any) -> int:
    """How many tokens a chunk has, at least 1."""
    return whole("chunk", chunk)


def check_feature(feature: Any, known: Any) -> None:
    """A function, or the name of one that is known."""
    if not callable(feature) and feature not in known:
        raise ValueError(f"feature is {feature!r}, must be {', '.join(known)} or a function")


def check_pair(initial: Any) -> None:
    """The state of a normalised form."""
    if not isinstance(initial, tuple) or len(initial) != 2:
        pair = "S [B, H, K, V] and z [B, H, K], where normalize is true"
        raise ValueError(f"initial is a {type(initial).__name__}, must be a pair: {pair}")


def check_causal(causal: Any) -> None:
    """Forms that walk along the tokens see none of those to come."""
    if not causal:
        raise ValueError(f"causal is {causal!r}, must be true here; `parallel` has both")
