"""The weighted sum of what a token's experts have made, in one pass, and its gradients in another.

As torch writes it, the products of rows and weights are a tensor in fp32, twice as large as what
the experts have made in bf16, that is written and read again: five times the bytes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.code import launch

TILE = 2**13  # numbers of a token's rows that a program holds at once


@triton.jit
def combine_kernel(
    made, weight, y, k, D, CHOICES: tl.constexpr, TILE_D: tl.constexpr
):  # fmt: skip
    """A tile of a token's y: its k rows of `made`, weighted and summed in fp32."""
    i_t = tl.program_id(0).to(tl.int64)
    o_d = tl.program_id(1) * TILE_D + tl.arange(0, TILE_D)
    o_k = tl.arange(0, CHOICES)
    m_made = (o_k < k)[:, None] & (o_d < D)[None, :]
    o_choice = i_t * k + o_k
    b_weight = tl.load(weight + o_choice, mask=o_k < k, other=0.0).to(tl.float32)
    p_made = made + o_choice[:, None] * D + o_d[None, :]
    b_made = tl.load(p_made, mask=m_made, other=0.0).to(tl.float32)
    b_y = tl.sum(b_weight[:, None] * b_made, 0)
    tl.store(y + i_t * D + o_d, b_y.to(y.dtype.element_ty), mask=o_d < D)


@triton.jit
def spread_kernel(
    made, weight, dy, dmade, dweight, k, D,
    CHOICES: tl.constexpr, TILE_D: tl.constexpr,
):  # fmt: skip
    """Of a token's k choices: dmade = weight dy, dweight = <made, dy> in fp32."""
    i_t, o_k = tl.program_id(0).to(tl.int64), tl.arange(0, CHOICES)
    o_choice = i_t * k + o_k
    b_weight = tl.load(weight + o_choice, mask=o_k < k, other=0.0).to(tl.float32)
    b_dweight = tl.zeros([CHOICES], tl.float32)
    for start in range(0, D, TILE_D):
        o_d = start + tl.arange(0, TILE_D)
        m_made = (o_k < k)[:, None] & (o_d < D)[None, :]
        o_made = o_choice[:, None] * D + o_d[None, :]
        b_dy = tl.load(dy + i_t * D + o_d, mask=o_d < D, other=0.0).to(tl.float32)
        b_made = tl.load(made + o_made, mask=m_made, other=0.0).to(tl.float32)
        b_dweight += tl.sum(b_made * b_dy[None, :], 1)
        b_dmade = (b_weight[:, None] * b_dy[None, :]).to(dmade.dtype.element_ty)
        tl.store(dmade + o_made, b_dmade, mask=m_made)
    b_dweight = b_dweight.to(dweight.dtype.element_ty)
    tl.store(dweight + o_choice, b_dweight, mask=o_k < k)


class WeightedSum(torch.autograd.Function):
    """made [tokens k, D] and weight [tokens, k] give y [tokens, D], of made's type."""

    @staticmethod
    def forward(ctx, made: Tensor, weight: Tensor) -> Tensor:
        weight, (T, k), D = weight.contiguous(), weight.shape, made.shape[1]
        ctx.save_for_backward(made, weight)
        y, sizes = made.new_empty(T, D), tiles(k, D)
        if T:
            grid = (T, triton.cdiv(D, sizes["TILE_D"]))
            launch("combine", combine_kernel, grid, made, weight, y, k, D, **sizes)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, Tensor]:
        made, weight = ctx.saved_tensors
        (T, k), D, dy = weight.shape, made.shape[1], dy.contiguous()
        dmade, dweight = torch.empty_like(made), torch.empty_like(weight)
        if T:
            given = made, weight, dy, dmade, dweight, k, D
            launch("combine dx", spread_kernel, (T,), *given, **tiles(k, D))
        return dmade, dweight


def tiles(k: int, D: int) -> dict[str, int]:
    """Choices and columns of a tile, powers of two."""
    choices, columns = map(triton.next_power_of_2, (k, D))
    return {"CHOICES": choices, "TILE_D": min(columns, max(16, TILE // choices))}
