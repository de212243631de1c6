"""Sparse attention: pairs and blocks of windows, their price, and keys that are chosen."""

from weft.plan.sparse.accepts import check_layout, check_longformer
from weft.plan.sparse.choosing import (
    CHOSEN,
    INDEX_BYTES,
    INDEXER_PER_TOKEN,
    PER_PAIR,
    READS,
    ROW_BYTES,
    ChosenWork,
    Read,
    dsa_crossing,
    dsa_saving,
    dsa_work,
    mla_work,
    read,
    union,
)
from weft.plan.sparse.hybrid import cache_share, pair_share
from weft.plan.sparse.pairs import pairs, reach, spread
from weft.plan.sparse.price import break_even, least_keys, time_share, window_intensity
from weft.plan.sparse.tiles import blocks, touched, waste

__all__ = [
    "CHOSEN",
    "INDEXER_PER_TOKEN",
    "INDEX_BYTES",
    "PER_PAIR",
    "READS",
    "ROW_BYTES",
    "ChosenWork",
    "Read",
    "blocks",
    "break_even",
    "cache_share",
    "check_layout",
    "check_longformer",
    "dsa_crossing",
    "dsa_saving",
    "dsa_work",
    "least_keys",
    "mla_work",
    "pair_share",
    "pairs",
    "reach",
    "read",
    "spread",
    "time_share",
    "touched",
    "union",
    "waste",
    "window_intensity",
]
