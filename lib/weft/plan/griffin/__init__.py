"""Griffin: what its recurrence accepts, its scan's cost, its gates, and what a sequence keeps."""

from weft.plan.griffin.accepts import check_gates, check_scan
from weft.plan.griffin.gates import C, blocks_of_rank, gate_parameters, half_life, kept, slope
from weft.plan.griffin.keeps import (
    GriffinState,
    cache_bytes,
    decode_seconds,
    parameters,
    recurrentgemma,
    sequence_bytes,
)
from weft.plan.griffin.scan import AHEAD, LATENCY, least_channels, scan_seconds, scan_work

__all__ = [
    "AHEAD",
    "LATENCY",
    "C",
    "GriffinState",
    "blocks_of_rank",
    "cache_bytes",
    "check_gates",
    "check_scan",
    "decode_seconds",
    "gate_parameters",
    "half_life",
    "kept",
    "least_channels",
    "parameters",
    "recurrentgemma",
    "scan_seconds",
    "scan_work",
    "sequence_bytes",
    "slope",
]
