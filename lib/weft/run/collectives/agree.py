"""What ranks tell each other before they send: how much each has, and what was asked.

It goes through the store in which the ranks of a group have met, not over the links that carry
tensors, so no device waits for it; no plan's `sent` counts these some hundred bytes a rank, nor
does weft.meter.traffic see them. A rank whose arguments are wrong says that there, and all raise
the same error: one that went on alone would wait for ever.

Every rank reads what all have told: n^2 small answers of one server, which is quick within some
nodes. Where thousands meet before every layer, counts go by an all-gather on the devices.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch.distributed as dist

from weft.run.collectives.checks import group_rank_size
from weft.run.world import World

First = TypeVar("First")
EAGER, PAUSE = 0.2, 5e-5  # seconds of looking again and again, and between two looks
_meetings: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()


def agreed(
    world: World | dist.ProcessGroup, mine: Callable[[], tuple[First, Mapping[str, Any]]]
) -> list[First]:
    """What every rank says first; ValueError on all of them if anything else differs.

    `mine` checks this rank's arguments, which may raise ValueError, and returns what it has to
    say, in words that JSON has, and what must be the same on every rank, by name.
    """
    group, _, _ = group_rank_size(world)
    if not callable(mine):
        raise ValueError(f"mine is {mine!r}, must be a function")
    try:
        told = [*mine()]
    except ValueError as error:
        if group.size() == 1:
            raise
        told = [str(error)]
    everybody = _exchanged(group, told)
    for rank, words in enumerate(everybody):
        if len(words) == 1:
            raise ValueError(words[0] if words == told else f"{words[0]} (on rank {rank})")
    first = everybody[0][1]
    for rank, (_, words) in enumerate(everybody):
        for name, value in first.items():
            if words[name] != value:
                raise ValueError(
                    f"{name} is {value} on rank 0 and {words[name]} on rank {rank}, "
                    f"must be the same on every rank"
                )
    return [words[0] for words in everybody]


def _exchanged(group: dist.ProcessGroup, told: list) -> list[list]:
    """What every rank has told, by rank, in this meeting of the group."""
    n, rank = group.size(), group.rank()
    if n == 1:
        return [told]
    store = dist.distributed_c10d._get_process_group_store(group)
    meeting = _meetings[group] = _meetings.get(group, 0) + 1
    store.set(f"weft/agreed/{meeting}/{rank}", json.dumps(told))
    keys = [f"weft/agreed/{meeting}/{r}" for r in range(n)]
    until = time.monotonic() + EAGER
    while time.monotonic() < until and not store.check(keys):
        time.sleep(PAUSE)  # a store that is a file would sleep for longer
    everybody = [json.loads(words) for words in store.multi_get(keys)]
    store.delete_key(f"weft/agreed/{meeting - 1}/{rank}")  # all have read it, for they are here
    return everybody
