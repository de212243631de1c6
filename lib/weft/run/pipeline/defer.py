"""Deferred weight gradients: the backward of a linear layer in two parts, B now and W later.

Autograd computes a layer's input gradient and its weight gradient in one go. The first is what
the previous stage waits for; the second nobody waits for, and a zero-bubble schedule puts it
where the rank would idle. So a linear layer runs here through a function of its own, whose
backward returns the input gradient and leaves (input, output gradient) in a store; W empties the
store into the weights. Nothing is computed twice, and all that W keeps alive is those two tensors.
"""

from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

Deferred = list[tuple[nn.Linear, Tensor, Tensor]]


class WeightGradientStore:
    """While entered, every plain nn.Linear of `modules` can defer its weight gradient.

    Set `active` before a forward that a B and a W will follow. Set `deferred` to a fresh list
    before the B, and hand that list to `weight_gradients` when its W comes. The gradients then
    land in .grad as autograd's would, added to what is there; a frozen weight gets none, and a
    weight that two layers share gets both parts. All other parameters (embeddings, norms,
    subclasses of nn.Linear, weights with hooks, anything under autocast) get their gradient in the
    backward itself.

    Qi et al. 2024, section 2; their implementation calls it the weight-gradient store.
    """

    def __init__(self, modules: Iterable[nn.Module]):
        found = {id(part): part for module in modules for part in module.modules()}
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
        return self

    def __exit__(self, *failure) -> None:
        for layer in self._layers:
            del layer.forward


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
    trains = weight.requires_grad or (bias is not None and bias.requires_grad)
    hooked = _hooked(weight) or (bias is not None and _hooked(bias))
    if not (store.active and trains) or hooked or torch.is_autocast_enabled(x.device.type):
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
        # Detached, it is no view of anything, and what comes next may change it in place.
        return linear(x, weight, bias).detach()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        ctx.store.deferred.append((ctx.layer, x, grad))
        return grad @ weight if ctx.needs_input_grad[0] else None, None, None, None, None
