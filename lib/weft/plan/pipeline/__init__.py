"""Pipeline schedules, what they cost in closed form, and where their idle time goes."""

from weft.plan.pipeline.bubble import (
    fraction,
    idle,
    messages,
    microbatch_time,
    microbatches,
    overhead,
)
from weft.plan.pipeline.dualpipe import dualpipe
from weft.plan.pipeline.published import PROFILES, Profile, interleaved_as_published
from weft.plan.pipeline.schedules import (
    SCHEDULES,
    dualpipe_v,
    folded,
    gpipe,
    interleaved,
    looped,
    one_f_one_b,
    zb_h1,
    zb_h2,
    zb_v,
)
from weft.plan.pipeline.waits import Wait, ledger, live
from weft.plan.schedule import Action, Plan, validate

__all__ = [
    "PROFILES",
    "SCHEDULES",
    "Action",
    "Plan",
    "Profile",
    "Wait",
    "dualpipe",
    "dualpipe_v",
    "folded",
    "fraction",
    "gpipe",
    "idle",
    "interleaved",
    "interleaved_as_published",
    "ledger",
    "live",
    "looped",
    "messages",
    "microbatch_time",
    "microbatches",
    "one_f_one_b",
    "overhead",
    "validate",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
