"""A matmul of many groups of rows, and the experts' MLP made of two of them."""

from collections.abc import Callable

import torch
from torch import Tensor

from weft.kernels.code import Pass, recording
from weft.kernels.experts.combine import WeightedSum
from weft.kernels.experts.groups import Groups, groups
from weft.kernels.experts.launch import in_rows, kernel_type, matmul, matrices, tile
from weft.plan.experts import check_grouped, check_mlp


def grouped_matmul(x: Tensor, w: Tensor, sizes: Tensor) -> Tensor:
    """Each group of rows times its own matrix: [tokens, F], differentiable in x and w.

    x [tokens, D] sorted by expert, w [E, D, F], sizes [E] in int32 or int64: how many rows each
    expert has, one behind the other; rows behind the last come out as 0. One launch; sizes stay on
    the device, and nothing is padded or copied. For fp16, bf16 and fp32, summed in fp32.
    """
    check_grouped(x, w, sizes)
    kernel_type(x)
    return GroupedMatmul.apply(x, w, groups(sizes, len(x), tile("grouped", x).m), matmul)


class GroupedMatmul(torch.autograd.Function):
    """The matmul and its gradients: dX is one with the matrices transposed, dW one over rows.

    `multiply` is `launch.matmul`, or another with its arguments.
    """

    @staticmethod
    def forward(ctx, x, w, given: Groups, multiply: Callable):
        x = in_rows(x)
        ctx.save_for_backward(x, w, *given[:3])
        ctx.sizes, ctx.multiply = given[3:], multiply
        return multiply(x, w, given)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w, *tensors = ctx.saved_tensors
        given, dy = Groups(*tensors, *ctx.sizes), in_rows(dy)
        dx = ctx.multiply(dy, w.mT, given) if ctx.needs_input_grad[0] else None
        dw = matrices(x, dy, given) if ctx.needs_input_grad[1] else None
        return dx, dw, None, None


def mlp(
    x: Tensor, expert: Tensor, weight: Tensor, kept: Tensor, up: Tensor, down: Tensor
) -> Tensor:
    """The weighted sum of what each token's experts make of it, relu between two matmuls.

    x [tokens, D]; expert, weight and kept [tokens, k] as weft.ref.experts.route gives them; up
    [E, D, F], down [E, F, D]. Choices that are not kept add 0. Rows are gathered in the loads of
    the first matmul and put back by the stores of the second: nothing is copied in the order of
    experts, but what the first makes. Differentiable in x, weight, up and down.
    """
    check_mlp(x, expert, weight, kept, up, down)
    kernel_type(x)
    order, sizes = by_expert(expert, kept, len(up))
    given = groups(sizes, len(order), tile("grouped", x).m)
    made = ExpertsMLP.apply(x, up, down, order, expert.shape[1], given, matmul)
    return WeightedSum.apply(made, weight)


def by_expert(expert: Tensor, kept: Tensor, E: int) -> tuple[Tensor, Tensor]:
    """Choices in the order of their experts, those that are not kept last; and sizes [E].

    Sorted as 32 bits, which takes half the passes of 64; sizes are read off, not counted one by
    one into a few places that all wait for.
    """
    whither, order = torch.where(kept, expert, E).flatten().int().sort(stable=True)
    each = torch.arange(E + 1, dtype=whither.dtype, device=whither.device)
    return order, torch.searchsorted(whither, each).diff()


class ExpertsMLP(torch.autograd.Function):
    """What each choice's expert makes of its token, [tokens k, D]; kept is relu's output alone."""

    @staticmethod
    def forward(ctx, x, up, down, order, k: int, given: Groups, multiply: Callable):
        x, token = in_rows(x), order // k
        hidden = multiply(x, up, given, gather=token, relu=True, name="up")
        ctx.save_for_backward(x, up, down, hidden, order, token, *given[:3])
        ctx.k, ctx.sizes, ctx.multiply = k, given[3:], multiply
        return multiply(hidden, down, given, scatter=order, name="down")

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, up, down, hidden, order, token, *tensors = ctx.saved_tensors
        given, dy = Groups(*tensors, *ctx.sizes), in_rows(dy)
        multiply = ctx.multiply
        dhidden = multiply(dy, down.mT, given, gather=order, gate=hidden, name="down dx")
        ddown = matrices(hidden, dy, given, gather_dy=order, name="down dw")
        dup = matrices(x, dhidden, given, gather_x=token, name="up dw")
        dx = multiply(dhidden, up.mT, given, scatter=order, name="up dx")
        return dx.unflatten(0, (-1, ctx.k)).sum(1), dup, ddown, None, None, None, None


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The kernels of the forward and the backward pass, as they are launched on a chip."""
    return launched(mlp, target, **kind)


def launched(
    face: Callable, target: str, dtype: torch.dtype = torch.bfloat16, only: tuple[str, ...] = ()
) -> tuple[Pass, ...]:
    """Those of an MLP of 128 experts with 8 for each of 4096 tokens, in no memory at all."""
    tokens, k, E, D, F = 4096, 8, 128, 2048, 768
    shapes = (tokens, D), (E, D, F), (E, F, D), (tokens, k)
    x, up, down, weight = (
        torch.empty(shape, dtype=dtype, device="meta", requires_grad=True) for shape in shapes
    )
    expert = torch.zeros(tokens, k, dtype=torch.int64, device="meta")
    with recording(target) as found:
        y = face(x, expert, weight.float(), expert == 0, up, down)
        torch.autograd.grad(y, (x, up, down), torch.empty_like(y))
    return tuple(one for one in found if not only or one.name in only)
