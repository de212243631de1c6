"""Megatron-LM's arguments: a layout in its words, and its words as a layout."""

from weft.plan.composing.megatron.read import MegatronLine, from_megatron, read_megatron
from weft.plan.composing.megatron.write import to_megatron

__all__ = ["MegatronLine", "from_megatron", "read_megatron", "to_megatron"]
