"""What a rank does for autograd: each collective's backward is the opposite one.

A sum in forward copies its gradient to all; what all were given a copy of has a sum of gradients.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from weft.run.tensor.exchange import TensorRanks

Take = Callable[[Tensor, Tensor], None] | None


class ColumnMatmul(Function):
    """x W^T of a rank's outputs. `gathered`, if there, is the whole of x, which then is a part."""

    @staticmethod
    def forward(ctx, x, weight, bias, ranks: TensorRanks, take: Take, gathered: Tensor | None):
        y = None
        if ranks.sequence_parallel and gathered is None:
            if ranks.overlap:
                gathered, y = ranks.gather_matmul(x, lambda part: linear(part, weight, bias))
            else:
                gathered = ranks.gather(x)
        whole = x if gathered is None else gathered
        ctx.ranks, ctx.take = ranks, take
        ctx.save_for_backward(whole, weight)
        return linear(whole, weight, bias) if y is None else y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor):
        (x, weight), ranks = ctx.saved_tensors, ctx.ranks
        needs, dx, work = ctx.needs_input_grad, None, None
        if needs[0]:
            if ranks.overlap:
                dx = ranks.matmul_scatter(dy, lambda part: part @ weight)
            elif ranks.sequence_parallel:
                dx = ranks.scatter(dy @ weight)
            else:
                dx = dy @ weight
                work = ranks.sum(dx)  # while the gradients below are computed
        dw, db = gradients(dy, x, needs[1:3], ctx.take)
        if work:
            work.wait()
        return dx, dw, db, None, None, None


class RowMatmul(Function):
    """x W^T of a rank's inputs, summed over ranks; then the bias, once."""

    @staticmethod
    def forward(ctx, x, weight, bias, ranks: TensorRanks, take: Take):
        if ranks.overlap:
            y = ranks.matmul_scatter(x, lambda part: part @ weight.T)
        elif ranks.sequence_parallel:
            y = ranks.scatter(x @ weight.T)
        else:
            y = ranks.summed(x @ weight.T)
        ctx.ranks, ctx.take = ranks, take
        ctx.save_for_backward(x, weight)
        return y if bias is None else y + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor):
        (x, weight), ranks = ctx.saved_tensors, ctx.ranks
        if ranks.overlap:
            dy, dx = ranks.gather_matmul(dy, lambda part: part @ weight)
        else:
            dy = ranks.gather(dy) if ranks.sequence_parallel else dy
            dx = dy @ weight
        return dx, *gradients(dy, x, ctx.needs_input_grad[1:3], ctx.take), None, None


class LastRowMatmul(Function):
    """RowMatmul under sequence parallelism, added to `stream`, of whole outputs [B, T, D].

    The scattered sum is gathered once `stream` is added, as many bytes as an all-reduce. Its
    gradient is whole, so that backward sends nothing.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, stream, ranks: TensorRanks, take: Take):
        if ranks.overlap:
            y = ranks.matmul_scatter(x, lambda part: part @ weight.T)
        else:
            y = ranks.scatter(x @ weight.T)
        ctx.ranks, ctx.take = ranks, take
        ctx.save_for_backward(x, weight)
        y = stream + y
        return ranks.gather(y if bias is None else y + bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor):
        x, weight = ctx.saved_tensors
        dw, db = gradients(dy, x, ctx.needs_input_grad[1:3], ctx.take)
        return dy @ weight, dw, db, ctx.ranks.part(dy), None, None


class OwnTokens(Function):
    """A rank's tokens of what all have; the gradient of all of it is gathered."""

    @staticmethod
    def forward(ctx, x, ranks: TensorRanks):
        ctx.ranks = ranks
        return ranks.part(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, dx: Tensor):
        return ctx.ranks.gather(dx), None


class AllTokens(Function):
    """All ranks' tokens; the gradient, which all have alike, is cut."""

    @staticmethod
    def forward(ctx, x, ranks: TensorRanks):
        ctx.ranks = ranks
        return ranks.gather(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, dx: Tensor):
        return ctx.ranks.part(dx), None


class SummedWeights(Function):
    """Weights, each a vector, that all ranks have and use for other tokens: gradients are summed.

    Who forgets it has copies that drift apart.
    """

    @staticmethod
    def forward(ctx, ranks: TensorRanks, *weights: Tensor):
        ctx.ranks = ranks
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor):
        flat = ctx.ranks.summed(torch.cat(gradients))
        return None, *flat.split([x.numel() for x in gradients])


def gradients(
    dy: Tensor, x: Tensor, needs: tuple[bool, ...], take: Take
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of a matmul's weight and bias, if they are needed, and nobody takes them over.

    `take`, if there, is given what they are made of.
    """
    if take:
        take(x, dy)
        return None, None
    rows = dy.flatten(0, -2)
    return (rows.T @ x.flatten(0, -2) if needs[0] else None), (rows.sum(0) if needs[1] else None)
