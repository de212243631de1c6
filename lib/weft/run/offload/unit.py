"""A layer whose weights lie in a store: read before use, dropped after, moved as soon as they can.

Of a forward only the input is kept, and backward computes the layer again, so that weights are
needed at two moments and at no time between. When a layer's gradient is there, its moments are
read and Adam moves it at once: no gradient waits for the others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call

from weft.run.offload.adam import check_gradient, master_of, update
from weft.run.offload.memory import Memory
from weft.run.offload.store import Store


class Course:
    """What the units of one model share: the store, Adam's settings, how far the step is."""

    def __init__(self, store: Store | Memory, how: dict, notes: dict[str, Any] | None):
        self.store, self.how = store, how
        self.notes = notes  # of a state that is there already, or None
        self.anchor = torch.zeros((), requires_grad=True)  # makes every output need a gradient
        self.waiting: set[str] = set()  # went forward, and backward is to come
        self.moved: set[str] = set()  # have new weights that are not committed
        self.known: set[int] = set()


class Unit(nn.Module):
    """One layer, called as it is: its weights are [numel] in the store, its moments [2, numel].

    Weights that are neither fp32 nor fp64 have fp32 masters as a third row of the moments.
    """

    def __init__(self, layer: nn.Module, name: str, course: Course):
        super().__init__()
        self.__dict__["layer"] = layer  # not a part of this module: its weights are elsewhere
        self.name, self._course = name, course
        self.siblings, self.index = [self], 0
        self._named = dict(layer.named_parameters())
        self._shapes = [tuple(weight.shape) for weight in self._named.values()]
        self._numels = [weight.numel() for weight in self._named.values()]
        self.form = [[key, str(w.dtype), *w.shape] for key, w in self._named.items()]
        self.steps = [0] * len(self._named)
        self._check()
        if not self._named:
            return
        if course.notes is None:
            self._begin()
        elif course.notes["form"].get(name) != self.form:
            raise ValueError(f"store holds other weights than {name} has, must hold these or none")
        else:
            self.steps = list(course.notes["steps"][name])
        for weight in self._named.values():
            weight.data = torch.empty(0, dtype=weight.dtype)

    def _check(self) -> None:
        masters = {master_of(f"{self.name}.{key}", w) for key, w in self._named.items()}
        dtypes = {(weight.dtype, weight.device) for weight in self._named.values()}
        if len(dtypes) > 1:
            raise ValueError(f"{self.name} has weights of {dtypes}, must have one type and device")
        own = {id(weight) for weight in self._named.values()}
        if own & self._course.known:
            raise ValueError(f"{self.name} has a weight of another layer, must have its own")
        self._course.known |= own
        if not own:
            return
        ((self._dtype, self._device),), (self._master,) = dtypes, masters
        rows = 2 + (self._master != self._dtype)
        need = sum(self._numels) * (self._dtype.itemsize + rows * self._master.itemsize)
        budget = getattr(self._course.store, "budget", need)
        if need > budget:
            said = f"weights and moments of {self.name}: make its layers smaller, or of tiles"
            raise ValueError(f"budget is {budget} bytes, must be at least {need} for the {said}")

    def _begin(self) -> None:
        """The first state: the weights as they are, and moments of zero."""
        flat = torch.cat([w.detach().reshape(-1).cpu() for w in self._named.values()])
        rows = 2 + (self._master != self._dtype)
        moments = torch.zeros(rows, len(flat), dtype=self._master)
        if rows == 3:
            moments[2] = flat
        self._course.store.write(self.name + ".weights", flat, own=True)
        self._course.store.write(self.name + ".moments", moments, own=True)

    # --- use ----------------------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return _Recomputed.apply(self, x, self._course.anchor)
        return self.ahead(x)

    def ahead(self, x: Tensor) -> Tensor:
        """The layer's output, its weights dropped again; the next ones are on their way."""
        weights = self._read()
        self._prefetch(self.index + 1, ".weights")
        return self._call(weights, x)

    def back(self, x: Tensor, gradient: Tensor, needed: bool, again: "Again") -> Tensor | None:
        """The input's gradient, if `needed`; the layer is computed again, and moved."""
        if self.name in self._course.moved:
            raise RuntimeError("backward came twice since the last step(), must come once")
        weights = self._read()
        self._prefetch(self.index, ".moments")
        self._prefetch(self.index - 1, ".weights")
        leaves = {key: w.to(self._device).requires_grad_() for key, w in self._views(weights)}
        frozen = [key for key, weight in self._named.items() if not weight.requires_grad]
        for key in frozen:
            leaves[key].requires_grad_(False)
        x = x.detach().requires_grad_(needed)
        with torch.enable_grad(), again.conditions():
            output = functional_call(self.layer, leaves, (x,))
        if output.requires_grad:
            torch.autograd.backward(output, gradient)
        if self._named:
            self._move(weights, leaves)
        self._course.moved.add(self.name)
        self._course.waiting.discard(self.name)
        return x.grad

    @torch.no_grad()
    def _move(self, weights: Tensor, leaves: dict[str, Tensor]) -> None:
        """Adam, on the weights that have a gradient, and both files written behind."""
        for key, leaf in leaves.items():
            check_gradient(f"{self.name}.{key}", leaf)
        moments = self._course.store.read(self.name + ".moments")
        mean, square, *master = (row.split(self._numels) for row in moments)
        masters = master[0] if master else weights.split(self._numels)
        some = [i for i, leaf in enumerate(leaves.values()) if leaf.grad is not None]
        gradients = [leaf.grad for leaf in leaves.values() if leaf.grad is not None]
        gradients = [g.to("cpu", self._master).reshape(-1) for g in gradients]
        for i in some:
            self.steps[i] += 1
        lists = ([row[i] for i in some] for row in (mean, square, self.steps))
        update([masters[i] for i in some], gradients, *lists, self._course.how)
        if master:
            weights.copy_(moments[2])
        self._course.store.write(self.name + ".weights", weights, own=True)
        self._course.store.write(self.name + ".moments", moments, own=True)

    # --- inside -------------------------------------------------------------------------------

    def _read(self) -> Tensor | None:
        return self._course.store.read(self.name + ".weights") if self._named else None

    def _prefetch(self, index: int, what: str) -> None:
        if 0 <= index < len(self.siblings) and self.siblings[index]._named:
            self._course.store.prefetch(self.siblings[index].name + what)

    def _views(self, weights: Tensor | None) -> Iterator[tuple[str, Tensor]]:
        if weights is not None:
            pieces = weights.split(self._numels)
            for key, shape, piece in zip(self._named, self._shapes, pieces, strict=True):
                yield key, piece.view(shape)

    def _call(self, weights: Tensor | None, x: Tensor) -> Tensor:
        given = {key: weight.to(self._device) for key, weight in self._views(weights)}
        output = functional_call(self.layer, given, (x,))
        if not isinstance(output, Tensor):
            kind = type(output).__name__
            raise ValueError(f"{self.name} returned a {kind}, must return one tensor")
        return output

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Names and weights as the store has them, in its memory."""
        yield from self._views(self._read())


class _Recomputed(Function):
    """A unit in the graph: an input goes in, and nothing but it is kept."""

    @staticmethod
    def forward(ctx: Any, unit: Unit, x: Tensor, anchor: Tensor) -> Tensor:
        ctx.unit, ctx.again = unit, Again(x)
        ctx.save_for_backward(x)
        unit._course.waiting.add(unit.name)
        return unit.ahead(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, None]:
        (x,) = ctx.saved_tensors
        return None, ctx.unit.back(x, gradient, ctx.needs_input_grad[1], ctx.again), None


class Again:
    """What a layer's output depends on beside its input, as it is now: random numbers, autocast."""

    def __init__(self, x: Tensor):
        kind = x.device.type
        self._cast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        self._device = x.device
        self._here = torch.get_rng_state()
        self._there = torch.cuda.get_rng_state(x.device) if x.is_cuda else None

    @contextmanager
    def conditions(self) -> Iterator[None]:
        """Within it all is as it was then; afterwards as it was before."""
        devices = [] if self._there is None else [self._device]
        with torch.random.fork_rng(devices), torch.autocast(*self._cast):
            torch.set_rng_state(self._here)
            if self._there is not None:
                torch.cuda.set_rng_state(self._there, self._device)
            yield
