"""ZeRO stage 3: weights too are shared out, and gathered for as long as they are computed with.

Also called fully sharded data parallel, FSDP. Rajbhandari et al. 2020, section 5.3.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any
from weakref import WeakMethod, finalize

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from weft.run.zero.buckets import Bucket, Named
from weft.run.zero.comm_thread import Lane
from weft.run.zero.sharded import Zero2, remove


class Unit(Bucket):
    """A bucket whose row of weights is there while it is needed; `home` is kept.

    What autograd keeps of the weights are views of the row. The row's memory goes
    and comes back under them, so they need not be told.
    """

    here = False  # the parameters look into the row
    backward = False  # from its backward's beginning until all gradients are there
    coming: Future | None = None

    def keep(self) -> Tensor:
        """What this rank keeps of the weights: apart from the row."""
        return self.part(self.weights).clone()

    def gather(self, lane: Lane) -> None:
        """On the lane: the row is there again, with everybody's part of it."""
        resize(self.weights, self.numel)
        self.part(self.weights).copy_(self.home)
        lane.ring("all_gather", self.weights)

    def free(self) -> None:
        """The row's memory is given back, and the parameters look into nothing."""
        resize(self.weights, 0)
        self.show([self.weights.new_empty(0)] * len(self.names))
        self.here, self.backward, self.coming = False, False, None


class Zero3(Zero2):
    """Stage 3: a rank keeps the weights of its share alone.

    A unit is a child of the module, with the parameters that no other child has.
    Its weights are gathered before its forward and freed after it, and so for its
    backward; while it computes, the next unit's are on their way, so that two are
    there at a time. Which is next, the last forward has shown. Parameters of the
    module itself, and those that children share, are there from its first to its
    last unit; a child's own are empty for whoever does not call the child. All ranks
    run the same units in the same order.
    """

    stage, kind = 3, Unit

    def parts(self, named: Sequence[Named], bucket: int) -> Iterator[list[Named]]:
        self.modules, self._order, self._next, self._last = [], [], {}, {}
        for module, own in owned(self.module, named):
            self.modules.append(module)
            yield own

    def spread(self) -> None:
        """New weights go nowhere: they are gathered when they are needed."""

    # --- weights that come and go -----------------------------------------------------------------

    def need(self, unit: Unit, following: Unit | None = None) -> None:
        """Wait until a unit's weights are there; have the next's on their way."""
        if not unit.here:
            for other in self.buckets:
                if other.coming is not None and other is not unit:
                    self.close(other)  # the order has changed
            self._fetch(unit)
            unit.coming.result()
            unit.show(unit.looks)
            unit.here, unit.coming = True, None
        if following is not None and not following.here:
            self._fetch(following)

    def _fetch(self, unit: Unit) -> None:
        if unit.coming is None:
            unit.coming = self.lane.submit(unit.gather, self.lane)

    def close(self, unit: Unit) -> None:
        """Free a unit's weights, if they are there or on their way."""
        if unit.coming is not None:
            unit.coming.result()
        if unit.here or unit.coming is not None:
            unit.free()

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        self._order = []
        output = super().__call__(*inputs, **named)
        self._next = dict(pairwise(self._order))
        self._last = {later: unit for unit, later in self._next.items()}
        return output

    def before_forward(self, unit: Unit) -> None:
        """Have its weights, and the next's; those not where it is computed again."""
        if self._running or self.modules[self.buckets.index(unit)] is self.module:
            self.need(unit)
        else:
            self._order.append(unit)
            self.need(unit, self._next.get(unit))

    def after_forward(self, unit: Unit, output: Any) -> None:
        """Free its weights until the output's gradient arrives."""
        if not unit.backward:
            self.close(unit)
        back = WeakMethod(self.before_backward)
        for tensor in tree_leaves(output) if not self._running else ():
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(partial(_call, back, unit))

    def before_backward(self, unit: Unit, gradient: Tensor) -> None:
        """The output's gradient is there: have the weights, and the last unit's."""
        self._begin()
        unit.backward = True
        self.need(unit, self._last.get(unit))

    def _take(self, bucket: Unit, i: int, parameter: nn.Parameter) -> None:
        super()._take(bucket, i, parameter)
        if not bucket.missing:
            self.close(bucket)

    def _end(self) -> None:
        super()._end()
        self._close_all()

    def zero_grad(self) -> None:
        super().zero_grad()
        self._close_all()

    def _close_all(self) -> None:
        for unit in self.buckets:
            self.close(unit)

    @contextmanager
    def whole(self, bucket: Unit) -> Iterator[None]:
        self.need(bucket)
        try:
            yield
        finally:
            self.close(bucket)

    def _listen(self) -> None:
        super()._listen()
        before, after = WeakMethod(self.before_forward), WeakMethod(self.after_forward)
        handles = []
        for module, unit in zip(self.modules, self.buckets, strict=True):
            handles += [
                module.register_forward_pre_hook(partial(_before, before, unit)),
                module.register_forward_hook(partial(_after, after, unit)),
            ]
            unit.free()
        finalize(self, remove, handles)


def owned(module: nn.Module, named: Sequence[Named]) -> Iterator[tuple[nn.Module, list[Named]]]:
    """Each child with the trained parameters of its own, the last first; then the module.

    Children that only hold others, and those of a Sequential, are looked into.
    """
    users: dict[int, list[nn.Module]] = {}
    children = list(_children(module))
    for child in children:
        for parameter in child.parameters():
            users.setdefault(id(parameter), []).append(child)
    for child in reversed([module, *children]):
        own = [
            (name, parameter)
            for name, parameter in reversed(named)
            if _owner(users.get(id(parameter), []), module) is child
        ]
        if own:
            yield child, own


def _owner(users: list[nn.Module], module: nn.Module) -> nn.Module:
    return users[0] if len(users) == 1 else module


def _children(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if type(child) is nn.Sequential or type(child).forward is nn.Module.forward:
            yield from _children(child)
        else:
            yield child


def resize(row: Tensor, numel: int) -> None:
    """Give a row's memory back, or get it again, under all that look into it.

    This is the operation by which torch does it where meters can see it.
    """
    torch.ops.inductor.resize_storage_bytes_(row, numel * row.element_size())


# --- hooks, which must not keep what they call alive ----------------------------------------------


def _before(method: WeakMethod, unit: Unit, module: nn.Module, inputs: Any) -> None:
    _call(method, unit)


def _after(method: WeakMethod, unit: Unit, module: nn.Module, inputs: Any, output: Any) -> None:
    _call(method, unit, output)


def _call(method: WeakMethod, *arguments: Any) -> None:
    found = method()
    if found is not None:
        found(*arguments)
