"""One call of attention, by whichever version computes it, and its gradients."""

from collections.abc import Callable

import torch
from torch import Tensor

from weft.kernels.attention.backward import backward
from weft.kernels.attention.launch import Problem, example, problem
from weft.kernels.code import Pass

Forward = Callable[[Problem], tuple[Tensor, Tensor]]  # o [B, T, H, V] and lse [B, H, T]


class Differentiable(torch.autograd.Function):
    """A forward pass that keeps q, k, v, o and lse, never a score, and the one backward pass."""

    @staticmethod
    def forward(ctx, q, k, v, mask, causal, scale, forward):
        x = problem(q, k, v, causal, scale, mask)
        o, lse = forward(x)
        ctx.save_for_backward(x.q, x.k, x.v, x.mask, o, lse)
        ctx.problem = x._replace(q=None, k=None, v=None, mask=None)
        ctx.set_materialize_grads(False)
        return o, lse.transpose(1, 2)

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, mask, o, lse = ctx.saved_tensors
        with torch.no_grad():
            do = torch.zeros_like(o) if do is None else do
            x = ctx.problem._replace(q=q, k=k, v=v, mask=mask)
            grads = backward(x, o, lse, do, dlse, ctx.needs_input_grad)
        if torch.is_grad_enabled():  # somebody means to differentiate again
            grads = [None if grad is None else Last.apply(grad, q, k, v) for grad in grads]
        return *grads, None, None, None, None


class Last(torch.autograd.Function):
    """The identity, on a gradient that is the last: it depends on q, k and v in unknown ways."""

    @staticmethod
    def forward(ctx, grad, *depends):
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("attention can be differentiated once: it has no second derivative here")


def call(forward: Forward, q, k, v, causal, scale, mask, lse) -> Tensor | tuple[Tensor, Tensor]:
    """Run one version's forward pass, so that gradients can flow back through it."""
    o, sums = Differentiable.apply(q, k, v, mask, causal, scale, forward)
    return (o, sums) if lse else o


def compiled(
    forward: Forward, target: str, with_backward: bool = False, **kind
) -> tuple[Pass, ...]:
    """All that a version would launch on a chip, for `example`'s tensors, without launching it."""
    x = example(target, **kind)
    o, lse = forward(x)
    if with_backward:
        backward(x, o, lse, torch.empty_like(o), None)
    return tuple(x.passes)
