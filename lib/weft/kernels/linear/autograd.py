"""One call of a chunked form and its gradients, in passes.

Nothing but the arguments is kept: the states are computed again, which reads k and v once more
and saves K V / C numbers for each token and head.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from weft.kernels.attention import NoSecondDerivative, in_rows
from weft.kernels.code import Pass, recording
from weft.kernels.linear.channels import added_up, channel_gradients, channel_output
from weft.kernels.linear.decay import decay
from weft.kernels.linear.launch import ChunkProblem, problem
from weft.kernels.linear.output import output
from weft.kernels.linear.states import states

Forward = Callable[[ChunkProblem, Tensor | None], tuple[Tensor, Tensor]]


def in_passes(x: ChunkProblem, initial: Tensor | None) -> tuple[Tensor, Tensor]:
    """o [B, T, H, V] and the state after the last token, the states first."""
    x = prepared(x)
    each, last = states(x, x.k, x.v, initial)
    face = output if x.left is None else channel_output
    return face(x, "output", x.q, x.k, x.v, each), last


def differentiable(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, initial: Tensor | None, chunk: int,
    forward: Forward = in_passes,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o [B, T, H, V] and the state after the last token; backward is the same for all forwards."""
    return Chunked.apply(q, k, v, log_decay, initial, chunk, forward)


class Chunked(torch.autograd.Function):
    """The passes of a chunked form, and those of its gradients."""

    @staticmethod
    def forward(ctx, q, k, v, log_decay, initial, chunk, forward):
        x = problem(q, k, v, log_decay, initial, chunk)
        ctx.save_for_backward(x.q, x.k, x.v, x.g, initial)
        ctx.problem = x._replace(q=None, k=None, v=None, g=None)
        ctx.set_materialize_grads(False)
        return forward(x, initial)

    @staticmethod
    def backward(ctx, do, dlast):
        q, k, v, g, initial = ctx.saved_tensors
        with torch.no_grad():
            x = prepared(ctx.problem._replace(q=q, k=k, v=v, g=g))
            do = torch.zeros_like(v) if do is None else in_rows(do)
            grads = backward(x, initial, do, dlast, ctx.needs_input_grad)
        if torch.is_grad_enabled():  # somebody means to differentiate again
            once = NoSecondDerivative.apply
            grads = [None if one is None else once(one, q, k, v) for one in grads]
        return *grads, None, None


def prepared(x: ChunkProblem) -> ChunkProblem:
    """A problem with decays by channel has them added up beforehand."""
    by_channel = x.g is not None and x.g.dim() == x.k.dim()
    return added_up(x) if by_channel else x


def backward(
    x: ChunkProblem, initial: Tensor | None, do: Tensor, dlast: Tensor | None, wanted
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v, the decays and the initial state, those that are wanted."""
    dstates, dinitial = states(x, x.q, do, dlast, backwards=True)
    dinitial = dinitial if wanted[4] else None
    before_each = wanted[0] or wanted[3] or x.left is not None
    each = states(x, x.k, x.v, initial)[0] if before_each else None
    if x.left is not None:
        dq, dk, dg = channel_gradients(x, do, each, dstates)
        return dq, dk, channel_output(x, "dv", x.k, x.q, do, dstates), dg, dinitial
    dq = output(x, "dq", do, x.v, x.k, each) if wanted[0] else None
    dk = output(x, "dk", x.v, do, x.q, dstates) if wanted[1] else None
    dv = output(x, "dv", x.k, x.q, do, dstates) if wanted[2] else None
    dg = decay(x, do, each, dstates) if wanted[3] else None
    return dq, dk, dv, dg, dinitial


def launched(
    face: Callable,
    target: str,
    dtype: torch.dtype = torch.bfloat16,
    width: int = 128,
    decays: int | None = None,
    chunk: int = 64,
) -> tuple[Pass, ...]:
    """What a face launches on a chip for 16 heads of 4096 tokens, in no memory at all.

    `decays` is how many dims a token's and head's have, None where there are none.
    """
    shape = (2, 4096, 16)
    given = [torch.empty(*shape, width, dtype=dtype, device="meta") for _ in range(3)]
    if decays is not None:
        given.append(torch.empty(*shape, *[width] * decays, device="meta"))
    for one in given:
        one.requires_grad_()
    with recording(target) as found:
        o = face(*given, chunk=chunk)
        torch.autograd.grad(o, given, torch.empty_like(o))
    return tuple({one.name: one for one in found}.values())  # some run in both directions
