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


class StreamState:
    """What the layers of one model share: the store, Adam's settings, how far the step is."""

    def __init__(self, store: Store | Memory, how: dict, notes: dict[str, Any] | None):
        self.store, self.how = store, how
        self.notes = notes  # of a state that is there already, or None
        self.anchor = torch.zeros((), requires_grad=True)  # makes every output need a gradient
        self.waiting: set[str] = set()  # layers that went forward, and backward is to come
        self.moved: set[str] = set()  # layers with new weights that are not committed
        self.known: set[int] = set()  # the id of every weight


class StreamedLayer(nn.Module):
    """A layer that is called as before, with its weights [numel] and moments [2, numel] in a store.

    Weights that are neither fp32 nor fp64 have fp32 masters as a third row of the moments.
    `siblings` are the layers that are used one after the other, and this one is the `index`-th.
    """

    def __init__(self, layer: nn.Module, name: str, shared: StreamState):
        super().__init__()
        self._held = [layer]  # in a list, so that its weights are none of this module's
        self.name, self._shared = name, shared
        self.siblings, self.index = [self], 0
        self._named = dict(layer.named_parameters())
        self._shapes = [tuple(weight.shape) for weight in self._named.values()]
        self._numels = [weight.numel() for weight in self._named.values()]
        self.form = [[key, str(w.dtype), *w.shape] for key, w in self._named.items()]
        self.steps = [0] * len(self._named)
        self._check()
        if not self._named:
            return
        if shared.notes is None:
            self._begin()
        elif shared.notes["form"].get(name) != self.form:
            raise ValueError(f"store holds other weights than {name} has, must hold these or none")
        else:
            self.steps = list(shared.notes["steps"][name])
        for weight in self._named.values():
            weight.data = torch.empty(0, dtype=weight.dtype)

    @property
    def module(self) -> nn.Module:
        """The layer itself, whose weights are empty."""
        return self._held[0]

    def _check(self) -> None:
        """ValueError unless the weights are of one type, its own, and fit into the budget."""
        masters = {master_of(f"{self.name}.{key}", w) for key, w in self._named.items()}
        dtypes = {(weight.dtype, weight.device) for weight in self._named.values()}
        if len(dtypes) > 1:
            raise ValueError(f"{self.name} has weights of {dtypes}, must have one type and device")
        own = {id(weight) for weight in self._named.values()}
        if own & self._shared.known:
            raise ValueError(f"{self.name} has a weight of another layer, must have its own")
        self._shared.known |= own
        if not own:
            return
        ((self._dtype, self._device),), (self._master,) = dtypes, masters
        rows = 2 + (self._master != self._dtype)
        need = sum(self._numels) * (self._dtype.itemsize + rows * self._master.itemsize)
        budget = getattr(self._shared.store, "budget", need)
        if need > budget:
            use = f"weights and moments of {self.name}: make its layers smaller, or of tiles"
            raise ValueError(f"budget is {budget} bytes, must be at least {need} for the {use}")

    def _begin(self) -> None:
        """The first state: the weights as they are, and moments of zero."""
        flat = torch.cat([w.detach().reshape(-1).cpu() for w in self._named.values()])
        rows = 2 + (self._master != self._dtype)
        moments = torch.zeros(rows, len(flat), dtype=self._master)
        if rows == 3:
            moments[2] = flat
        self._shared.store.write(self.name + ".weights", flat, own=True)
        self._shared.store.write(self.name + ".moments", moments, own=True)

    # --- use ----------------------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return _Recomputed.apply(self, x, self._shared.anchor)
        return self.ahead(x)

    def ahead(self, x: Tensor) -> Tensor:
        """The layer's output; its weights are dropped, and the next layer's prefetched."""
        weights = self._read()
        self._prefetch(self.index + 1, ".weights")
        return self._call(weights, x)

    def back(self, x: Tensor, gradient: Tensor, needed: bool, rng: "SavedRng") -> Tensor | None:
        """Compute the layer again and its gradients, and have Adam move its weights.

        The input's gradient, where it is `needed`. Random numbers are those of the forward.
        """
        if self.name in self._shared.moved:
            raise RuntimeError("backward came twice since the last step(), must come once")
        weights = self._read()
        self._prefetch(self.index, ".moments")
        self._prefetch(self.index - 1, ".weights")
        leaves = {key: w.to(self._device).requires_grad_() for key, w in self._views(weights)}
        frozen = [key for key, weight in self._named.items() if not weight.requires_grad]
        for key in frozen:
            leaves[key].requires_grad_(False)
        x = x.detach().requires_grad_(needed)
        with torch.enable_grad(), rng.restored():
            output = functional_call(self.module, leaves, (x,))
        if output.requires_grad:
            torch.autograd.backward(output, gradient)
        if self._named:
            self._move(weights, leaves)
        self._shared.moved.add(self.name)
        self._shared.waiting.discard(self.name)
        return x.grad

    @torch.no_grad()
    def _move(self, weights: Tensor, leaves: dict[str, Tensor]) -> None:
        """A step of Adam on the weights that have a gradient; both files are written behind."""
        for key, leaf in leaves.items():
            check_gradient(f"{self.name}.{key}", leaf)
        moments = self._shared.store.read(self.name + ".moments")
        mean, square, *master = (row.split(self._numels) for row in moments)
        masters = master[0] if master else weights.split(self._numels)
        some = [i for i, leaf in enumerate(leaves.values()) if leaf.grad is not None]
        gradients = [leaf.grad for leaf in leaves.values() if leaf.grad is not None]
        gradients = [g.to("cpu", self._master).reshape(-1) for g in gradients]
        for i in some:
            self.steps[i] += 1
        lists = ([row[i] for i in some] for row in (mean, square, self.steps))
        update([masters[i] for i in some], gradients, *lists, self._shared.how)
        if master:
            weights.copy_(moments[2])
        self._shared.store.write(self.name + ".weights", weights, own=True)
        self._shared.store.write(self.name + ".moments", moments, own=True)

    # --- inside -------------------------------------------------------------------------------

    def _read(self) -> Tensor | None:
        return self._shared.store.read(self.name + ".weights") if self._named else None

    def _prefetch(self, index: int, what: str) -> None:
        if 0 <= index < len(self.siblings) and self.siblings[index]._named:
            self._shared.store.prefetch(self.siblings[index].name + what)

    def _views(self, weights: Tensor | None) -> Iterator[tuple[str, Tensor]]:
        if weights is not None:
            pieces = weights.split(self._numels)
            for key, shape, piece in zip(self._named, self._shapes, pieces, strict=True):
                yield key, piece.view(shape)

    def _call(self, weights: Tensor | None, x: Tensor) -> Tensor:
        given = {key: weight.to(self._device) for key, weight in self._views(weights)}
        output = functional_call(self.module, given, (x,))
        if not isinstance(output, Tensor):
            kind = type(output).__name__
            raise ValueError(f"{self.name} returned a {kind}, must return one tensor")
        return output

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Names and weights as the store has them, in its memory."""
        yield from self._views(self._read())


class _Recomputed(Function):
    """A layer in the graph, of which nothing but the input is kept."""

    @staticmethod
    def forward(ctx: Any, layer: StreamedLayer, x: Tensor, anchor: Tensor) -> Tensor:
        ctx.layer, ctx.rng = layer, SavedRng(x)
        ctx.save_for_backward(x)
        layer._shared.waiting.add(layer.name)
        return layer.ahead(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, None]:
        (x,) = ctx.saved_tensors
        return None, ctx.layer.back(x, gradient, ctx.needs_input_grad[1], ctx.rng), None


class SavedRng:
    """The state of the random numbers where `x` lies, and of autocast, when this is made."""

    def __init__(self, x: Tensor):
        kind = x.device.type
        self._cast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        self._device = x.device
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state(x.device) if x.is_cuda else None

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Within it both are as they were saved; afterwards as they were before."""
        devices = [] if self._cuda is None else [self._device]
        with torch.random.fork_rng(devices), torch.autocast(*self._cast):
            torch.set_rng_state(self._cpu)
            if self._cuda is not None:
                torch.cuda.set_rng_state(self._cuda, self._device)
            yield
