"""Attention with a state of fixed size: what its forms accept."""

from weft.plan.linear.accepts import (
    StateSizes,
    check,
    check_causal,
    check_chunk,
    check_feature,
    check_pair,
    check_per_token,
    check_state,
)
from weft.plan.linear.decays import DECAYS, checked_decays

__all__ = [
    "DECAYS",
    "StateSizes",
    "check",
    "check_causal",
    "check_chunk",
    "check_feature",
    "check_pair",
    "check_per_token",
    "check_state",
    "checked_decays",
]
