"""From tensors to launches: a matmul of groups of rows, and the gradient of its matrices."""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from weft.kernels.attention import INTERPRETER, TYPES, chip, padded
from weft.kernels.code import launch
from weft.kernels.experts.grouped import grouped_kernel, weights_kernel
from weft.kernels.experts.groups import Groups
from weft.plan.tensors import dtype_of


class GroupTile(NamedTuple):
    """Rows, contraction and columns of a tile; warps; stages of loads."""

    m: int
    k: int
    n: int
    warps: int = 8
    stages: int = 3

    def options(self) -> dict[str, int]:
        """What Triton is told besides the arguments of a kernel."""
        return {"num_warps": self.warps, "num_stages": self.stages}


SMALL = GroupTile(16, 32, 32, 4, 1)  # in the interpreter
SINGLE = GroupTile(64, 32, 64, 8, 2)  # of fp32
TILES = {"grouped": GroupTile(128, 64, 128), "weights": GroupTile(64, 128, 128)}


def tile(name: str, x: Tensor) -> GroupTile:
    """The tile of a pass for the chip and the type of a tensor."""
    if chip(x.device) == INTERPRETER:
        return SMALL
    return SINGLE if x.element_size() == 4 else TILES[name]


def matmul(
    x: Tensor,
    w: Tensor,
    given: Groups,
    gather: Tensor | None = None,
    scatter: Tensor | None = None,
    relu: bool = False,
    gate: Tensor | None = None,
    name: str = "grouped",
) -> Tensor:
    """x [rows, D] times w [E, D, F], each group of rows with its own matrix: [rows, F]."""
    E, D, F = w.shape
    one = tile("grouped", x)
    y = x.new_empty(given.rows, F)
    programs = given.most * triton.cdiv(F, one.n)
    if programs and F:
        launch(
            name, grouped_kernel, (programs,), x=x, w=w, y=y, gather=gather, scatter=scatter,
            gate=gate, first=given.first, tiles=given.tiles, E=E, D=D, F=F, x_row=x.stride(0),
            w_e=w.stride(0), w_d=w.stride(1), w_f=w.stride(2), RELU=relu, GROUPS=padded(E + 1),
            EXACT=x.dtype == torch.float32, TILE_M=given.tile, TILE_K=one.k, TILE_N=one.n,
            **one.options(),
        )  # fmt: skip
    return y


def matrices(
    x: Tensor,
    dy: Tensor,
    given: Groups,
    gather_x: Tensor | None = None,
    gather_dy: Tensor | None = None,
    name: str = "weights",
) -> Tensor:
    """dW [E, D, F]: for each group x^T dy of its rows, x [rows, D] and dy [rows, F]."""
    D, F = x.shape[1], dy.shape[1]
    one, dw = tile("weights", x), x.new_empty(given.experts, D, F)
    programs = given.experts * triton.cdiv(D, one.k) * triton.cdiv(F, one.n)
    launch(
        name, weights_kernel, (programs,), x=x, dy=dy, dw=dw, gather_x=gather_x,
        gather_dy=gather_dy, first=given.first, D=D, F=F, x_row=x.stride(0), dy_row=dy.stride(0),
        EXACT=x.dtype == torch.float32, TILE_M=one.m, TILE_K=one.k, TILE_N=one.n, **one.options(),
    )  # fmt: skip
    return dw


def in_rows(x: Tensor) -> Tensor:
    """The matrix, or a copy where a row does not lie in one piece."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def kernel_type(x: Tensor) -> None:
    """Refuse a type that kernels have no products for."""
    if x.dtype not in TYPES:
        kind = dtype_of(x)
        raise ValueError(f"x is {kind}, must be float16, bfloat16 or float32 for a kernel")
