"""One call of attention, by whichever version computes it, and its gradients."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.kernels.attention_backward import backward
from weft.kernels.attention_launch import Problem, example, problem
from weft.kernels.compile import Pass

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
    @once_differentiable
    def backward(ctx, do, dlse):
        q, k, v, mask, o, lse = ctx.saved_tensors
        if do is None:
            do = torch.zeros_like(o)
        x = ctx.problem._replace(q=q, k=k, v=v, mask=mask)
        return *backward(x, o, lse, do, dlse, ctx.needs_input_grad), None, None, None, None


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
