"""Tensor and sequence parallelism: what a layer sends, keeps, and waits for."""

from weft.plan.tensor.kept import kept
from weft.plan.tensor.latency import kv_share, one_shot, one_shot_until
from weft.plan.tensor.price import OVERLAPS, LayerTime, busy, layer_time, wall
from weft.plan.tensor.published import PLAYBOOK, Scaled
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
    "PLAYBOOK",
    "CallStep",
    "LayerCall",
    "LayerTime",
    "Scaled",
    "busy",
    "calls",
    "kept",
    "kv_share",
    "layer_time",
    "one_shot",
    "one_shot_until",
    "sent",
    "sent_ends",
    "sent_norms",
    "shares",
    "steps",
    "wall",
]
