"""Attention with a state of fixed size: what its forms accept, and what ranks send."""

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
from weft.plan.linear.answers import (
    answers,
    written,
)
from weft.plan.linear.decays import (
    DECAYS,
    checked_decays,
)
from weft.plan.linear.decoding import (
    next_token,
    same_as_cache,
    state_bytes,
)
from weft.plan.linear.forms import (
    FORMS,
    REGISTERS,
    RULES,
    STATE,
    OnChip,
    best_chunk,
    break_even,
    inverse,
    on_chip,
    programs,
    work,
)
from weft.plan.linear.limits import (
    least_decay,
    most_rows,
    stalls,
)
from weft.plan.linear.ranks import (
    DECODER_RULES,
    FACTORS,
    METHODS,
    same_as_ring,
    sent,
    sent_by_ring,
)

__all__ = [
    "DECAYS",
    "DECODER_RULES",
    "FACTORS",
    "FORMS",
    "METHODS",
    "REGISTERS",
    "RULES",
    "STATE",
    "OnChip",
    "StateSizes",
    "answers",
    "best_chunk",
    "break_even",
    "check",
    "check_causal",
    "check_chunk",
    "check_feature",
    "check_pair",
    "check_per_token",
    "check_state",
    "checked_decays",
    "inverse",
    "least_decay",
    "most_rows",
    "next_token",
    "on_chip",
    "programs",
    "same_as_cache",
    "same_as_ring",
    "sent",
    "sent_by_ring",
    "stalls",
    "state_bytes",
    "work",
    "written",
]
