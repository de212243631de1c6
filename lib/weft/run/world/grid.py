"""The ranks that work together, as one of them sees them: who they are and how they are laid out.

Groups are arguments: our code asks its World for the group to talk to. torch also wants one
default group to exist in a process; it is initialised here, and nothing of ours relies on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from weft.plan.arguments import sizes

BACKENDS = {"gloo": "gloo", "nccl": "cpu:gloo,cuda:nccl"}
_MARGIN = 60.0  # a group's own limit lies beyond the launch's, whose report says more


@dataclass(frozen=True, eq=False)
class World:
    """Some ranks that work together, as one of them sees it.

    rank is this process's place among them, 0 … size - 1, and is what torch calls the group rank:
    send with `group_dst=`, receive with `group_src=`. device is where its tensors belong.
    """

    rank: int
    size: int
    device: torch.device
    _group: dist.ProcessGroup = field(repr=False)
    _axes: dict[str, World] = field(default_factory=dict, repr=False)
    _lines: dict[tuple[int, int], World] = field(default_factory=dict, repr=False)

    def group(self, axis: str | None = None) -> dist.ProcessGroup:
        """The process group of all these ranks, or of those along an axis of a grid."""
        return self._group if axis is None else self.axis(axis)._group

    def axis(self, name: str) -> World:
        """The ranks along an axis: those that differ from this one in that coordinate alone.

        Its rank is this process's coordinate, its size the length of the axis.
        """
        if name not in self._axes:
            raise ValueError(f"axis = {name!r}: must be one of {sorted(self._axes)}")
        return self._axes[name]

    def grid(self, **axes: int) -> World:
        """The same ranks, laid out on named axes; the last axis varies fastest.

        Every rank of this world calls it with the same axes. `world.grid(d=2, p=4).axis("p")` is
        the pipeline that this rank belongs to. Ranks that have been an axis before, of this or
        another grid of these ranks, are the same World again: a group keeps threads and sockets.
        """
        if not axes or any(not is_count(length) for length in axes.values()):
            raise ValueError(f"axes = {axes}: each must be a whole number of at least 1")
        if math.prod(axes.values()) != self.size:
            raise ValueError(
                f"axes = {axes}: their product is {math.prod(axes.values())},"
                f" must be the number of ranks, {self.size}"
            )
        members = dist.get_process_group_ranks(self._group)
        along, stride = {}, self.size
        for name, length in axes.items():
            stride //= length
            here = self.rank // stride % length
            line = (stride if length > 1 else 1, length)  # the same on every rank
            if line not in self._lines:
                first = self.rank - here * stride
                ranks = [members[first + i * stride] for i in range(length)]
                group = dist.new_group(ranks, use_local_synchronization=True)
                self._lines[line] = World(here, length, self.device, group)
            along[name] = self._lines[line]
        return World(self.rank, self.size, self.device, self._group, along)


def is_count(value: object) -> bool:
    """Whether it is a whole number of at least 1."""
    try:
        return bool(sizes(count=value))
    except ValueError:
        return False


def join(
    rank: int, size: int, local: int, backend: str, store: dist.Store, timeout: float
) -> World:
    """Become one of `size` ranks that meet in a store: the world of all of them."""
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        BACKENDS[backend],
        store=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout + _MARGIN),
        device_id=device if device.type == "cuda" else None,
    )
    return World(rank, size, device, dist.group.WORLD)
