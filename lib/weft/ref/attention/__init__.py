"""Exact attention: the definition, and FlashAttention as tiles in plain torch."""

from weft.ref.attention.exact import INF, attention, merge, softmax
from weft.ref.attention.tiled import fa2

__all__ = [
    "INF",
    "attention",
    "fa2",
    "merge",
    "softmax",
]
