"""One call of attention and its gradients: FlashAttention-2 forward and backward."""

from collections.abc import Callable

import torch
from torch import Tensor

from weft.kernels.attention import fa2
from weft.kernels.attention.backward import backward
from weft.kernels.attention.launch import Problem, problem
from weft.kernels.code import Pass, recording

Forward = Callable[[Problem], tuple[Tensor, Tensor]]  # o [B, T, H, V] and lse [B, T, H]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    mask: Tensor | None = None,
    lse: bool = False,
    window: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(q k^T * scale) v, tile by tile, as weft.ref.attention defines it.

    With a `window` a causal query sees itself and the window - 1 keys before it: the query counts,
    as in weft.ref.griffin.local_attention; weft.ref.sparse counts the keys beside it. What is read
    and computed are the tiles in which a pair is seen.
    For fp16, bf16 and fp32 and heads of up to 256; scores, softmax and sums are in fp32.
    """
    return differentiable(fa2.forward, q, k, v, causal, scale, mask, lse, window)


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The kernels of the forward and the backward pass, as they are launched on a chip."""
    return launched(attention, target, backward=True, **kind)


def differentiable(
    forward: Forward, q, k, v, causal, scale, mask, lse, window=None
) -> Tensor | tuple[Tensor, Tensor]:
    """A version of attention with its own forward pass; the backward pass is the same for all."""
    o_BTHV, lse_BTH = Attention.apply(q, k, v, mask, causal, scale, forward, window)
    return (o_BTHV, lse_BTH) if lse else o_BTHV


class Attention(torch.autograd.Function):
    """A forward pass that keeps q, k, v, o and the log-sum-exp, never a score, and its backward."""

    @staticmethod
    def forward(ctx, q, k, v, mask, causal, scale, forward, window):
        x = problem(q, k, v, causal, scale, mask, window)
        o_BTHV, lse_BTH = forward(x)
        ctx.save_for_backward(x.q, x.k, x.v, x.mask, o_BTHV, lse_BTH)
        ctx.problem = x._replace(q=None, k=None, v=None, mask=None)
        ctx.set_materialize_grads(False)
        return o_BTHV, lse_BTH

    @staticmethod
    def backward(ctx, do_BTHV, dlse_BTH):
        q, k, v, mask, o_BTHV, lse_BTH = ctx.saved_tensors
        with torch.no_grad():
            do_BTHV = torch.zeros_like(o_BTHV) if do_BTHV is None else do_BTHV
            x = ctx.problem._replace(q=q, k=k, v=v, mask=mask)
            grads = backward(x, o_BTHV, lse_BTH, do_BTHV, dlse_BTH, ctx.needs_input_grad)
        if torch.is_grad_enabled():  # somebody means to differentiate again
            once = NoSecondDerivative.apply
            grads = [None if one is None else once(one, q, k, v) for one in grads]
        return *grads, None, None, None, None, None


class NoSecondDerivative(torch.autograd.Function):
    """The identity on a gradient, made to depend on q, k and v so that its derivative is refused.

    torch's once_differentiable lets it pass, as a constant, where the gradient that came in does
    not require one: the penalty of a gradient's norm would silently be 0.
    """

    @staticmethod
    def forward(ctx, grad, *depends):
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("attention can be differentiated once: it has no second derivative here")


def launched(
    face: Callable,
    target: str,
    backward: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    width: int = 128,
    causal: bool = True,
    **how: int,
) -> tuple[Pass, ...]:
    """What a face launches on a chip for 16 heads of 4096 queries and keys, in no memory at all."""
    q, k, v = (
        torch.empty(2, 4096, 16, width, dtype=dtype, device="meta", requires_grad=backward)
        for _ in range(3)
    )
    with recording(target) as found:
        o_BTHV = face(q, k, v, causal, **how)
        if backward:
            torch.autograd.grad(o_BTHV, (q, k, v), torch.empty_like(o_BTHV))
    return tuple(found)
