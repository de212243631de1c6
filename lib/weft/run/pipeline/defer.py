"""Deferred weight gradients: the backward of a linear layer in two parts, B now and W later.

Autograd computes a layer's input gradient and its weight gradient in one go. The first is what
the previous stage waits for; the second nobody waits for, and a zero-bubble schedule puts it
where the rank would idle. So a linear layer runs here through a function of its own, whose
backward returns the input gradient and leaves (input, output gradient) in a store; W empties the
store into the weights. Nothing is computed twice, and all that W keeps alive is those two tensors.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

Deferred = list[tuple[nn.Module, Tensor, Tensor]]


class WeightGradientStore:
    """While entered, every plain nn.Linear of `modules` can defer its weight gradient.

    Set `active` before a forward that a B and a W will follow. Set `deferred` to a fresh list
    before the B, and hand that list to `weight_gradients` when its W comes. The gradients then
    land in .grad as autograd's would, added to what is there; a frozen weight gets none, and a
    weight that two layers share gets both parts. All other parameters (embeddings, norms,
    subclasses of nn.Linear, weights with hooks, anything under autocast) get their gradient in the
    backward itself.

    A module of another kind can do the same if it has a weight, a bias or None, and an attribute
    `defer`, None at first. While the store is entered that is a function, which each forward calls:
    it gives None, or what its backward calls with (input, output gradient) in place of computing
    the two gradients, weight.grad = output gradient^T input.

    Qi et al. 2024, section 2; their implementation calls it the weight-gradient store.
    """

    def __init__(self, modules: Iterable[nn.Module]):
        found = {id(part): part for module in modules for part in module.modules()}
        self._able = [part for part in found.values() if hasattr(part, "defer")]
        # Somebody else's replacement of a layer's forward is left alone.
        self._layers = [
            part
            for part in found.values()
            if type(part) is nn.Linear and "forward" not in vars(part)
        ]
        self.active = True
        self.deferred: Deferred = []

    def __enter__(self) -> "WeightGradientStore":
        for layer in self._layers:
            layer.forward = partial(_forward, self, layer)
        for part in self._able:
            part.defer = partial(self._taker, part)
        return self

    def __exit__(self, *failure) -> None:
        for layer in self._layers:
            del layer.forward
        for part in self._able:
            part.defer = None

    def defers(self, layer: nn.Module) -> bool:
        """Whether what a layer now does in forward will leave its weight gradient for later."""
        weight, bias = layer.weight, layer.bias
        trains = weight.requires_grad or (bias is not None and bias.requires_grad)
        hooked = _hooked(weight) or (bias is not None and _hooked(bias))
        under_autocast = torch.is_autocast_enabled(weight.device.type)
        return self.active and trains and not hooked and not under_autocast

    def _taker(self, part: nn.Module) -> Callable[[Tensor, Tensor], None] | None:
        if not self.defers(part):
            return None
        return lambda x, grad: self.deferred.append((part, x, grad))


@torch.no_grad()
def weight_gradients(deferred: Deferred) -> None:
    """Compute the gradients of weights and biases that a backward has deferred."""
    while deferred:
        layer, x, grad = deferred.pop()
        x, grad = x.reshape(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
        weight, bias = layer.weight, layer.bias
        if weight.requires_grad:
            if weight.grad is None:
                weight.grad = grad.T @ x
            else:
                weight.grad.addmm_(grad.T, x)
        if bias is not None and bias.requires_grad:
            total = grad.sum(0)
            bias.grad = total if bias.grad is None else bias.grad.add_(total)


def _forward(store: WeightGradientStore, layer: nn.Linear, x: Tensor) -> Tensor:
    weight, bias = layer.weight, layer.bias
    if not store.defers(layer):
        return linear(x, weight, bias)
    return _Linear.apply(x, weight, bias, layer, store)


def _hooked(parameter: Tensor) -> bool:
    """Whether somebody wants to see its gradient when autograd has it."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, layer, store):
        ctx.save_for_backward(x, weight)
        ctx.layer, ctx.store = layer, store
        # Detached, it is no view: what comes next may change it in place.
        return linear(x, weight, bias).detach()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        ctx.store.deferred.append((ctx.layer, x, grad))
        dx = grad @ weight if ctx.needs_input_grad[0] else None
        return dx, None, None, None, None
