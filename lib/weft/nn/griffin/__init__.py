"""Griffin and Hawk: decoders that mix by a gated recurrence, and by attention over a window."""

from weft.nn.griffin.load import load
from weft.nn.griffin.mixers import LocalAttention, RecurrentBlock, rg_lru
from weft.nn.griffin.model import Griffin, GriffinConfig, Hawk

__all__ = [
    "Griffin",
    "GriffinConfig",
    "Hawk",
    "LocalAttention",
    "RecurrentBlock",
    "load",
    "rg_lru",
]
