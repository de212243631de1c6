"""Tensor and sequence parallelism: what a layer sends, keeps, and waits for."""

from weft.plan.tensor.accepts import (
    VocabularyPart,
    check_norm,
    check_part,
    check_swiglu,
    check_words,
)
from weft.plan.tensor.between import (
    MOVED,
    Moved,
    fused_work,
)
from weft.plan.tensor.kept import (
    kept,
)
from weft.plan.tensor.latency import (
    kv_share,
    one_shot,
    one_shot_until,
    ring_of_few,
)
from weft.plan.tensor.price import (
    OVERLAPS,
    LayerTime,
    busy,
    layer_time,
    wall,
)
from weft.plan.tensor.published import (
    NODES,
    PLAYBOOK,
    Scaled,
    fitted,
)
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
    "MOVED",
    "NODES",
    "OVERLAPS",
    "PLAYBOOK",
    "CallStep",
    "LayerCall",
    "LayerTime",
    "Moved",
    "Scaled",
    "VocabularyPart",
    "busy",
    "calls",
    "check_norm",
    "check_part",
    "check_swiglu",
    "check_words",
    "fitted",
    "fused_work",
    "kept",
    "kv_share",
    "layer_time",
    "one_shot",
    "one_shot_until",
    "ring_of_few",
    "sent",
    "sent_ends",
    "sent_norms",
    "shares",
    "steps",
    "wall",
]
