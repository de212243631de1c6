"""A state that is larger than the memory: where it lives, and how it streams through buffers."""

from weft.plan.offload.host import (
    ADAM_BYTES,
    DELAYS,
    HOST_REACHES,
    HOSTS,
    STEP_FLOPS,
    Host,
    adam_time,
    computing_share,
    tokens_for,
    update_time,
)
from weft.plan.offload.places import (
    INFINITY,
    LEVELS,
    MACHINES,
    STATES,
    STRATEGIES,
    Node,
    carried,
    largest,
    placed,
)
from weft.plan.offload.rates import FLOWS, V100_REACHES, share_left, trillion
from weft.plan.offload.stream import KINDS, Move, Stream, period, ramp, step_time, streamed
from weft.plan.offload.tiles import tile_bytes, tiles_for
from weft.plan.offload.update import LANES, WAYS, OffloadedStep, step_period, step_spans

__all__ = [
    "ADAM_BYTES",
    "DELAYS",
    "FLOWS",
    "HOSTS",
    "HOST_REACHES",
    "INFINITY",
    "KINDS",
    "LANES",
    "LEVELS",
    "MACHINES",
    "STATES",
    "STEP_FLOPS",
    "STRATEGIES",
    "V100_REACHES",
    "WAYS",
    "Host",
    "Move",
    "Node",
    "OffloadedStep",
    "Stream",
    "adam_time",
    "carried",
    "computing_share",
    "largest",
    "period",
    "placed",
    "ramp",
    "share_left",
    "step_period",
    "step_spans",
    "step_time",
    "streamed",
    "tile_bytes",
    "tiles_for",
    "tokens_for",
    "trillion",
    "update_time",
]
