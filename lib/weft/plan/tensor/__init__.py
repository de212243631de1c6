"""Tensor and sequence parallelism: what a layer sends, keeps, and waits for."""

from weft.plan.tensor.accepts import (
    VocabularyPart,
    check_norm,
    check_part,
    check_swiglu,
    check_words,
)
from weft.plan.tensor.between import MOVED, Moved, fused_work
from weft.plan.tensor.kept import kept
from weft.plan.tensor.price import OVERLAPS, LayerTime, layer_time, wall
from weft.plan.tensor.traffic import HALVES, LayerCall, calls, sent, sent_ends, sent_norms, shares

__all__ = [
    "HALVES",
    "MOVED",
    "OVERLAPS",
    "LayerCall",
    "LayerTime",
    "Moved",
    "VocabularyPart",
    "calls",
    "check_norm",
    "check_part",
    "check_swiglu",
    "check_words",
    "fused_work",
    "kept",
    "layer_time",
    "sent",
    "sent_ends",
    "sent_norms",
    "shares",
    "wall",
]
