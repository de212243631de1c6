"""Retention: how far its fixed decays reach, and what RetNet costs beside a Transformer."""

from weft.plan.retention.models import RETNETS, RetentionModel
from weft.plan.retention.scales import decay_sum, fading, half_life, horizon, lightning, spread
from weft.plan.retention.serving import ServedModel, of_cache, of_states
from weft.plan.retention.training import speedup, token_flops

__all__ = [
    "RETNETS",
    "RetentionModel",
    "ServedModel",
    "decay_sum",
    "fading",
    "half_life",
    "horizon",
    "lightning",
    "of_cache",
    "of_states",
    "speedup",
    "spread",
    "token_flops",
]
