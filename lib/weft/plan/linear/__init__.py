"""Attention with a state of fixed size: what its forms accept, and what ranks send."""

from weft.plan.linear.accepts import StateSizes, check, check_chunk, check_per_token, check_state
from weft.plan.linear.ranks import FACTORS, METHODS, RULES, sent

__all__ = [
    "FACTORS",
    "METHODS",
    "RULES",
    "StateSizes",
    "check",
    "check_chunk",
    "check_per_token",
    "check_state",
    "sent",
]
