"""One call of a chunked form and its gradients, in two passes forward and five backward.

Nothing but the arguments is kept: the states are computed again, which reads k and v once more
and saves K V / C numbers for each token and head.
"""

import torch
from torch import Tensor

from weft.kernels.attention.face import NoSecondDerivative
from weft.kernels.attention.launch import in_rows
from weft.kernels.linear.decay import decay
from weft.kernels.linear.launch import Problem, problem
from weft.kernels.linear.output import output
from weft.kernels.linear.states import states


def differentiable(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, initial: Tensor | None, chunk: int,
    channels: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o [B, T, H, V] and the state after the last token [B, H, K, V]."""
    return Chunked.apply(q, k, v, log_decay, initial, chunk, channels)


class Chunked(torch.autograd.Function):
    """The passes of a chunked form, and those of its gradients."""

    @staticmethod
    def forward(ctx, q, k, v, log_decay, initial, chunk, channels):
        x = problem(q, k, v, log_decay, initial, chunk, channels)
        each, last = states(x, x.k, x.v, initial)
        ctx.save_for_backward(x.q, x.k, x.v, x.g, initial)
        ctx.problem = x._replace(q=None, k=None, v=None, g=None)
        ctx.set_materialize_grads(False)
        return output(x, x.q, x.k, x.v, each), last

    @staticmethod
    def backward(ctx, do, dlast):
        q, k, v, g, initial = ctx.saved_tensors
        x = ctx.problem._replace(q=q, k=k, v=v, g=g)
        with torch.no_grad():
            do = torch.zeros_like(v) if do is None else in_rows(do)
            grads = backward(x, initial, do, dlast, ctx.needs_input_grad)
        if torch.is_grad_enabled():  # somebody means to differentiate again
            once = NoSecondDerivative.apply
            grads = [None if one is None else once(one, q, k, v) for one in grads]
        return *grads, None, None


def backward(
    x: Problem, initial: Tensor | None, do: Tensor, dlast: Tensor | None, wanted
) -> list[Tensor | None]:
    """The gradients of q, k, v, the decays and the initial state, those that are wanted."""
    grads: list[Tensor | None] = [None] * 5
    dstates, dinitial = states(x, x.q, do, dlast, backwards=True)
    if wanted[0] or wanted[3]:
        each, _ = states(x, x.k, x.v, initial)
    if wanted[0]:
        grads[0] = output(x, do, x.v, x.k, each, transposed=True)
    if wanted[1]:
        grads[1] = output(x, x.v, do, x.q, dstates, transposed=True, backwards=True)
    if wanted[2]:
        grads[2] = output(x, x.k, x.q, do, dstates, backwards=True)
    if wanted[3]:
        grads[3] = decay(x, do, each, dstates)
    if wanted[4]:
        grads[4] = dinitial
    return grads
