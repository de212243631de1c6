"""Tensor and sequence parallelism: what a layer sends, keeps, and waits for."""

from weft.plan.tensor.kept import kept
from weft.plan.tensor.price import OVERLAPS, LayerTime, layer_time, wall
from weft.plan.tensor.traffic import (
    HALVES,
    CallStep,
    LayerCall,
    calls,
    sent,
    sent_ends,
    sent_norms,
    shares,
    steps,
)

__all__ = [
    "HALVES",
    "OVERLAPS",
    "CallStep",
    "LayerCall",
    "LayerTime",
    "calls",
    "kept",
    "layer_time",
    "sent",
    "sent_ends",
    "sent_norms",
    "shares",
    "steps",
    "wall",
]
