"""ZeRO stage 3: weights too are sharded, and gathered for as long as they are computed with.

Also called fully sharded data parallel, FSDP. Rajbhandari et al. 2020, section 5.3.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from weft.run.zero.buckets import Bucket, Named
from weft.run.zero.comm_thread import CommThread
from weft.run.zero.sharded import BUCKET, Zero2
from weft.run.zero.units import owned, warn_of_one


class ShardedModule(Bucket):
    """A unit: the parameters of one module, whose weights are whole while they are needed.

    Between uses this rank has its `shard` alone. What autograd keeps of the weights are
    views of the flat buffer: its memory goes and comes back under them, so they need
    not be told.
    """

    here = False  # the parameters look into the flat buffer
    in_backward = False  # from the beginning of its backward until all its gradients are there
    coming: Future | None = None  # its weights are being gathered

    def keep(self) -> Tensor:
        """What this rank keeps of the weights: a copy, since the flat buffer goes."""
        return self.part(self.weights).clone()

    def gather(self, comm: CommThread) -> None:
        """Fill the flat buffer again, with everybody's part of it."""
        resize(self.weights, self.numel)
        self.part(self.weights).copy_(self.shard)
        comm.ring("all_gather", self.weights)

    def free(self) -> None:
        """Give the flat buffer's memory back; the parameters are empty then."""
        resize(self.weights, 0)
        self.point_parameters([self.weights.new_empty(0)] * len(self.names))
        self.hide()
        self.here, self.in_backward, self.coming = False, False, None


class Zero3(Zero2):
    """Stage 3: a rank keeps the weights of its shard alone.

    A unit is a child of the module, or a block below one (units.found), with the
    parameters that no other unit has. Its weights are gathered before its forward and
    freed after it, and so for its backward; while it computes, the next unit's are on
    their way, so that two are there at a time. Which is next, the last forward has
    shown. Parameters of no unit, and those that units share, are the root's, there from
    the first to the last unit; a unit's own are away (away.Away) for whoever does not
    call it. All ranks run the same units in the same order.
    """

    stage, kind = 3, ShardedModule

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        for unit in self.buckets:
            unit.free()
        if self.rank == 0 < self.n - 1:
            warn_of_one([unit.numel for unit in self.buckets], small=BUCKET)

    def hooked(self, hooks: bool) -> bool:
        """Always: weights are freed when a unit's gradients have been taken."""
        return True

    def split(self, named: Sequence[Named], bucket: int) -> Iterator[list[Named]]:
        self.modules, self._order, self._next, self._last = [], [], {}, {}
        self._root = self.module
        for module, own in owned(self.module, named, self.units):
            self.modules.append(module)
            yield own

    def gather_weights(self) -> None:
        """Nothing: new weights are gathered when they are needed, so old ones go."""
        self._reshard_all()

    # --- weights that come and go -----------------------------------------------------------------

    def unshard(self, unit: ShardedModule, after: ShardedModule | None) -> None:
        """Wait for a unit's weights; begin to gather those of the one after it."""
        if not unit.here:
            for other in self.buckets:
                if other.coming is not None and other is not unit:
                    self.reshard(other)  # the order has changed
            self._fetch(unit)
            unit.coming.result()
            unit.point_parameters(unit.weight_views)
            unit.here, unit.coming = True, None
        if after is not None and not after.here:
            self._fetch(after)

    def _fetch(self, unit: ShardedModule) -> None:
        if unit.coming is None:
            unit.coming = self.comm.submit(unit.gather, self.comm)

    def reshard(self, unit: ShardedModule) -> None:
        """Free a unit's weights, if they are there or on their way."""
        if unit.coming is not None:
            unit.coming.result()
        if unit.here or unit.coming is not None:
            unit.free()

    def _reshard_all(self) -> None:
        for unit in self.buckets:
            self.reshard(unit)

    @contextmanager
    def around_forward(self) -> Iterator[None]:
        self._order = []
        with super().around_forward():
            yield
        self._next = dict(pairwise(self._order))
        self._last = {later: unit for unit, later in self._next.items()}

    def before_forward(self, unit: ShardedModule, module: nn.Module, inputs: Any) -> None:
        """Have its weights, and the next's; those not where it is computed again."""
        if self._running or module is self._root:
            self.unshard(unit, None)
        else:
            self._order.append(unit)
            self.unshard(unit, self._next.get(unit))

    def after_forward(
        self, unit: ShardedModule, module: nn.Module, inputs: Any, output: Any
    ) -> None:
        """Free its weights until the output's gradient arrives."""
        if self._running:
            if not unit.in_backward:
                self.reshard(unit)
            return
        ends = [x for x in tensors_in(output) if x.requires_grad]
        for tensor in ends:
            tensor.register_hook(partial(self.before_backward, unit))
        if ends or not torch.is_grad_enabled():
            self.reshard(unit)  # else nothing would tell when its backward begins

    def before_backward(self, unit: ShardedModule, gradient: Tensor) -> None:
        """The output's gradient is there: have the weights, and those of the unit before it."""
        self._begin_backward()
        unit.in_backward = True
        self.unshard(unit, self._last.get(unit))

    def _take(self, bucket: ShardedModule, i: int, parameter: nn.Parameter) -> None:
        super()._take(bucket, i, parameter)
        if not bucket.missing:
            self.reshard(bucket)

    def _end_backward(self) -> None:
        super()._end_backward()
        self._reshard_all()

    def zero_grad(self) -> None:
        super().zero_grad()
        self._reshard_all()

    def close(self) -> None:
        super().close()
        for unit in self.buckets:
            self.unshard(unit, None)

    @contextmanager
    def whole(self, bucket: ShardedModule) -> Iterator[None]:
        self.unshard(bucket, None)
        try:
            yield
        finally:
            self.reshard(bucket)

    def register_hooks(self) -> Iterator[RemovableHandle]:
        yield from super().register_hooks()
        whole = torch.compiler.disable  # weights come and go between graphs, not in them
        for module, unit in zip(self.modules, self.buckets, strict=True):
            yield module.register_forward_pre_hook(whole(partial(self.before_forward, unit)))
            yield module.register_forward_hook(whole(partial(self.after_forward, unit)))


def tensors_in(output: Any) -> Iterator[Tensor]:
    """The tensors of an output, in lists, dicts and dataclasses within each other."""
    for leaf in tree_leaves(output):
        if isinstance(leaf, Tensor):
            yield leaf
        elif is_dataclass(leaf):
            for field in fields(leaf):
                yield from tensors_in(getattr(leaf, field.name))


def resize(flat: Tensor, numel: int) -> None:
    """Give a flat buffer's memory back, or get it again, under all that look into it.

    This is the operation by which torch does it where meters can see it.
    """
    torch.ops.inductor.resize_storage_bytes_(flat, numel * flat.element_size())
