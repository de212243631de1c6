"""Collectives made of sends and receives: the plan's steps, executed by real ranks."""

from weft.run.collectives.agree import agreed
from weft.run.collectives.checks import group_rank_size
from weft.run.collectives.execute import (
    ALGORITHMS,
    Group,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    reduce_scatter,
    run,
)

__all__ = [
    "ALGORITHMS",
    "Group",
    "agreed",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "group_rank_size",
    "reduce_scatter",
    "run",
]
