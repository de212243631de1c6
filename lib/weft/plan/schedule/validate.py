"""Whether a plan is a schedule: all of the work, once, on the right rank, in a possible order."""

from collections.abc import Sequence

from weft.plan.arguments import sizes
from weft.plan.schedule.actions import COMPUTE, RECEIVES, SENDS, Action, Plan
from weft.plan.schedule.messages import check_messages


def validate(plan: Plan) -> None:
    """Raise ValueError unless every stage runs every microbatch forward, then backward, once.

    Says which action is missing, doubled, misplaced or too early; in a lowered plan, which send or
    receive (`check_messages`). Whether ranks that each keep their own order can
    also wait for one another in a circle is `weft.plan.simulate`'s to find.
    """
    if not isinstance(plan, Plan):
        raise ValueError(f"plan is {plan!r}, must be a Plan")
    if plan.lowered not in (None, "fused", "naive"):
        raise ValueError(f"lowered is {plan.lowered!r}, must be None, 'fused' or 'naive'")
    sizes(p=plan.p, m=plan.m, v=plan.v)
    if len(plan.rows) != plan.p:
        raise ValueError(f"plan has {len(plan.rows)} rows, must have one per rank, p = {plan.p}")
    shares = [plan.ranks.count(rank) for rank in range(plan.p)]
    if len(plan.ranks) != plan.stages or shares != [plan.v] * plan.p:
        raise ValueError(f"ranks is {plan.ranks}, must give each of {plan.p} ranks {plan.v} stages")
    for rank, row in enumerate(plan.rows):
        _validate_row(plan, rank, row)
    if plan.lowered:
        check_messages(plan)


def _validate_row(plan: Plan, rank: int, row: Sequence[Action]) -> None:
    before = {"F": None, "B": "F", "W": "B"}
    done = set()
    for action in row:
        if not isinstance(action, Action):
            kind = type(action).__name__
            raise ValueError(f"{action!r} on rank {rank} is a {kind}, must be an Action")
        kind, microbatch, stage = action
        if plan.lowered and kind in SENDS + RECEIVES:
            continue
        if kind not in COMPUTE:
            raise ValueError(f"{action!r} has kind {kind!r}, must be one of {', '.join(COMPUTE)}")
        if not (0 <= microbatch < plan.m and 0 <= stage < plan.stages):
            raise ValueError(f"{action!r} is outside m = {plan.m} and {plan.stages} stages")
        if plan.ranks[stage] != rank:
            raise ValueError(f"{action!r} is on rank {rank}, its stage is on {plan.ranks[stage]}")
        for part in kind:  # BW is B and W
            if (part, microbatch, stage) in done:
                raise ValueError(f"{action!r} is a duplicate: its {part} has run on rank {rank}")
            if part != "F" and (before[part], microbatch, stage) not in done:
                raise ValueError(f"{action!r} runs before its {before[part]} on rank {rank}")
            done.add((part, microbatch, stage))
    for stage in plan.stages_of(rank):
        for microbatch in range(plan.m):
            for part in "FBW":
                if (part, microbatch, stage) not in done:
                    raise ValueError(
                        f"plan is incomplete: {part} of microbatch {microbatch}, stage {stage} "
                        f"is missing on rank {rank}"
                    )
