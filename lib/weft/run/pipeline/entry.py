"""The input of a stage: where its own autograd graph begins, and where the graph's gradient ends.

A leaf of the graph would do, but autograd lets nobody change a leaf in place, and a stage may begin
with an operation that does, ReLU(inplace=True) say: cut out of its model it has to work as it did
inside. So what a stage is given has been made by an operation, whose backward keeps the gradient.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class StageEntry:
    """A tensor `x` from another stage, on its way into this one.

    `enter` gives the tensor to compute with: the same data, without a copy. `gradient`, after the
    backward, is that of `x`, zero where nothing has depended on it.
    """

    def __init__(self, x: Tensor):
        self._x = x.detach()
        self._gradient: Tensor | None = None

    def enter(self) -> Tensor:
        return _Enter.apply(torch.empty(0, requires_grad=True), self)

    @property
    def gradient(self) -> Tensor:
        return torch.zeros_like(self._x) if self._gradient is None else self._gradient


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, nothing, entry):  # without an input that trains, autograd would take no notice
        ctx.entry = entry
        return entry._x.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        ctx.entry._gradient = grad
        return None, None
