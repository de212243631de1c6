"""One call of the delta rule's chunked form and its gradients, in passes.

Once it is known what each token writes, u_t = beta_t (v_t - a_t S_{t-1}^T k_t), the delta rule is
linear attention with u in the place of v. So there are two passes before those of `gated`, which
find u, and backward two behind, which lead from its gradient to those of what it is made of.
"""

import torch
from torch import Tensor

from weft.kernels.attention import NoSecondDerivative, in_rows
from weft.kernels.code import Pass, recording
from weft.kernels.linear.delta.gradients import gradients
from weft.kernels.linear.delta.inverse import inverse
from weft.kernels.linear.delta.written import flows, inside, written
from weft.kernels.linear.launch import ChunkProblem, problem
from weft.kernels.linear.output import output
from weft.plan.linear import check, check_per_token


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None = None,
    initial: Tensor | None = None,
    final: bool = False,
    chunk: int = 64,
) -> Tensor | tuple[Tensor, Tensor]:
    """What a chunk writes from its triangular system, then the state from chunk to chunk.

    As weft.ref.linear.delta.chunked, for fp16, bf16 and fp32, K and V of up to 256 and chunks of
    up to 128 tokens; sums and states are in fp32. A log_decay of -inf, or of less than -111, resets
    the state; its own gradient is 0. On a GPU neither beta nor a decay is looked at beforehand,
    since that would have to wait for it.
    """
    check(q, k, v)
    look = q.device.type == "cpu"
    check_per_token("beta", beta, q, least=0.0, most=2.0, look=look)
    if log_decay is not None:
        check_per_token("log_decay", log_decay, q, look=look)
    o, last = DeltaRule.apply(q, k, v, beta, log_decay, initial, chunk)
    return (o, last) if final else o


class DeltaRule(torch.autograd.Function):
    """The passes of the delta rule and those of its gradients; only the arguments are kept."""

    @staticmethod
    def forward(ctx, q, k, v, beta, log_decay, initial, chunk):
        x = problem(q, k, v, log_decay, initial, chunk)
        beta = in_rows(beta.float() if beta.dtype == torch.float64 else beta)
        ctx.save_for_backward(x.q, x.k, x.v, x.g, beta, initial)
        ctx.problem = x._replace(q=None, k=None, v=None, g=None)
        ctx.set_materialize_grads(False)
        found = inverse(x, beta)
        each, u, last = written(x, found, initial)
        return output(x, "output", x.q, x.k, u, each).to(v.dtype), last

    @staticmethod
    def backward(ctx, do, dlast):
        q, k, v, g, beta, initial = ctx.saved_tensors
        with torch.no_grad():
            x = ctx.problem._replace(q=q, k=k, v=v, g=g)
            do = torch.zeros_like(v) if do is None else in_rows(do)
            grads = backward(x, beta, initial, do, dlast)
        if torch.is_grad_enabled():  # somebody means to differentiate again
            once = NoSecondDerivative.apply
            grads = [None if one is None else once(one, q, k, v) for one in grads]
        return *grads, None


def backward(
    x: ChunkProblem, beta: Tensor, initial: Tensor | None, do: Tensor, dlast: Tensor | None
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v, beta, the decays and the initial state."""
    found = inverse(x, beta)
    each, u, _ = written(x, found, initial)
    dstates, du, dinitial = flows(x, found, do, inside(x, do), dlast)
    grads = gradients(x, beta, found, u, du, do, each, dstates)
    return *grads, None if initial is None else dinitial


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The kernels of the forward and the backward pass, as they are launched on a chip."""
    return launched(target, **kind)


def launched(
    target: str,
    dtype: torch.dtype = torch.bfloat16,
    width: int = 128,
    decays: bool = True,
    chunk: int = 64,
    only: tuple[str, ...] = (),
) -> tuple[Pass, ...]:
    """Those for 16 heads of 4096 tokens, or `only` some of them, in no memory at all."""
    shape = (2, 4096, 16)
    given = [torch.empty(*shape, width, dtype=dtype, device="meta") for _ in range(3)]
    given += [torch.empty(shape, device="meta") for _ in range(1 + decays)]
    for one in given:
        one.requires_grad_()
    with recording(target) as found:
        o = chunked(*given, chunk=chunk)
        torch.autograd.grad(o, given, torch.empty_like(o))
    listed = {one.name: one for one in found}  # some run in both directions
    return tuple(one for name, one in listed.items() if not only or name in only)
