"""SwiGLU, gate * sigmoid(gate) * up, in one pass over memory each way.

Three numbers for each of an output row are moved forward: gate and up in, their product out.
Backward reads both again and what flows back, and writes two gradients: five. Nothing else is
kept: the sigmoid is computed again, which is cheaper than to write and read it. Gate and up may be
halves of one matrix, whose rows are then further apart; neither is copied.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.code import Pass, launch, recording
from weft.kernels.tensor.rows import in_rows, kernel_tensors, load_part, store_part, view
from weft.plan.tensor import check_swiglu

BLOCK = 2**10  # numbers of a program, 8 for each thread: 16 bytes of bf16


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate * sigmoid(gate) * up, both [.., F] of fp16, bf16 or fp32, computed in fp32.

    Differentiable in both. Shazeer 2020.
    """
    check_swiglu(gate, up)
    kernel_tensors(gate=gate, up=up)
    return SwiGLU.apply(gate, up)


class SwiGLU(torch.autograd.Function):
    """With s = sigmoid(gate): d up = dy gate s, d gate = dy up s (1 + gate (1 - s))."""

    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        y = gate.new_empty(gate.shape)
        _launch("swiglu", swiglu_kernel, gate=gate, up=up, y=y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate, dup = gate.new_empty(gate.shape), up.new_empty(up.shape)
        _launch("swiglu dx", gradient_kernel, gate=gate, up=up, dy=dy, dgate=dgate, dup=dup)
        return dgate, dup


def _launch(name: str, kernel, **tensors: Tensor) -> None:
    """A program for each block of each row."""
    rows = {name: view(in_rows(x)) for name, x in tensors.items()}
    tokens, F = rows["gate"].p.shape
    blocks = triton.cdiv(F, BLOCK)
    if tokens:
        launch(name, kernel, (tokens * blocks,), **rows, F=F, blocks=blocks, BLOCK=BLOCK)


@triton.jit
def swiglu_kernel(gate, up, y, F, blocks, BLOCK: tl.constexpr):
    """A block of a row of the product."""
    i, o_f = place(blocks, BLOCK)
    b_gate = load_part(gate, i, o_f, o_f < F)
    b_y = b_gate * tl.sigmoid(b_gate) * load_part(up, i, o_f, o_f < F)
    store_part(y, i, o_f, o_f < F, b_y)


@triton.jit
def gradient_kernel(gate, up, dy, dgate, dup, F, blocks, BLOCK: tl.constexpr):
    """A block of a row of both gradients."""
    i, o_f = place(blocks, BLOCK)
    b_gate, b_dy = load_part(gate, i, o_f, o_f < F), load_part(dy, i, o_f, o_f < F)
    b_up, b_s = load_part(up, i, o_f, o_f < F), tl.sigmoid(b_gate)
    store_part(dup, i, o_f, o_f < F, b_dy * b_gate * b_s)
    b_dgate = b_dy * b_up * b_s * (1.0 + b_gate * (1.0 - b_s))
    store_part(dgate, i, o_f, o_f < F, b_dgate)


@triton.jit
def place(blocks, BLOCK: tl.constexpr):
    """Row and columns of this program; 64 bits, as a number may lie beyond 2^31."""
    i = tl.program_id(0)
    return (i // blocks).to(tl.int64), i % blocks * BLOCK + tl.arange(0, BLOCK)


def passes(target: str) -> tuple[Pass, ...]:
    """Forward and backward, in bf16, of halves of one matrix."""
    both = torch.empty(4096, 2 * 14_336, dtype=torch.bfloat16, device="meta", requires_grad=True)
    with recording(target) as found:
        gate, up = both.chunk(2, -1)
        y = swiglu(gate, up)
        torch.autograd.grad(y, (gate, up), torch.empty_like(y))
    return tuple(found)
