"""Rows of a tensor for a kernel: [.., D] as [tokens, D], each row in one piece."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from weft.kernels.attention import TYPES
from weft.kernels.code import recorded_target
from weft.plan.tensors import dtype_of

SOME = 3  # programs where no chip says how many there are room for


class RowsView(NamedTuple):
    """A tensor [tokens, D] as a kernel takes it: its address, and elements from row to row."""

    p: Any
    row: Any


def kernel_tensors(**tensors: Tensor | None) -> None:
    """Refuse tensors of a type, or on a device, that kernels are not for."""
    for name, x in tensors.items():
        if x is not None and x.dtype not in TYPES:
            kind = dtype_of(x)
            raise ValueError(f"{name} is {kind}, must be float16, bfloat16 or float32 for a kernel")
        here = knobs.runtime.interpret or recorded_target()
        if x is not None and x.device.type != "cuda" and not here:
            raise ValueError(
                f"{name} is on {x.device}, must be on a CUDA device, or TRITON_INTERPRET=1"
            )


def in_rows(x: Tensor) -> Tensor:
    """The tensor as [tokens, D], a copy only where its rows are not in one piece or one stride."""
    x = x.reshape(-1, x.shape[-1])
    return x if x.stride(1) == 1 or x.shape[1] == 1 else x.contiguous()


def view(x: Tensor | None) -> RowsView | None:
    """A tensor [tokens, D] for a kernel."""
    return None if x is None else RowsView(x, x.stride(0))


def multiprocessors(x: Tensor) -> int:
    """How many the tensor's GPU has."""
    if x.device.type != "cuda":
        return SOME
    return torch.cuda.get_device_properties(x.device).multi_processor_count


@triton.jit
def load_part(x, i, o_d, m_d, CACHED: tl.constexpr = ""):
    """Some columns of row i in fp32, 0 where the mask is off; CACHED says how long they will be."""
    p_x = x.p + i * x.row + o_d
    return tl.load(p_x, mask=m_d, other=0.0, eviction_policy=CACHED).to(tl.float32)


@triton.jit
def store_part(x, i, o_d, m_d, b_x):
    """Some columns of row i, rounded to the tensor's type."""
    tl.store(x.p + i * x.row + o_d, b_x.to(x.p.dtype.element_ty), mask=m_d)
