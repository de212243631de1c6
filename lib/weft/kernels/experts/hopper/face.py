"""The faces of `weft.kernels.experts` with Hopper's matmuls: same arguments, same results."""

from torch import Tensor

from weft.kernels.code import Pass
from weft.kernels.experts import face
from weft.kernels.experts.combine import WeightedSum
from weft.kernels.experts.face import ExpertsMLP, GroupedMatmul, by_expert
from weft.kernels.experts.groups import groups
from weft.kernels.experts.hopper.launch import EIGHT, ROWS, matmul, tabled
from weft.kernels.hopper import check_device
from weft.plan.experts import check_grouped, check_mlp
from weft.plan.tensors import dtype_of

HALVES = ("float16", "bfloat16")


def grouped_matmul(x: Tensor, w: Tensor, sizes: Tensor) -> Tensor:
    """`weft.kernels.experts.grouped_matmul` on a Hopper GPU, where dX has the same kernel as y.

    x [tokens, D] and w [E, D, F] in fp16 or bf16, D and F multiples of 8. dW is Triton's. On CPU
    tensors the kernels are interpreted.
    """
    check_grouped(x, w, sizes)
    check_halves(x, D=w.shape[1], F=w.shape[2])
    return GroupedMatmul.apply(x, w, tabled(groups(sizes, len(x), ROWS)), matmul)


def mlp(
    x: Tensor, expert: Tensor, weight: Tensor, kept: Tensor, up: Tensor, down: Tensor
) -> Tensor:
    """`weft.kernels.experts.mlp` on a Hopper GPU: gathered, multiplied, scattered by two launches.

    x [tokens, D], up [E, D, F] and down [E, F, D] in fp16 or bf16, D and F multiples of 8; the
    gradients of up and down are Triton's. On CPU tensors the kernels are interpreted.
    """
    check_mlp(x, expert, weight, kept, up, down)
    check_halves(x, D=up.shape[1], F=up.shape[2])
    order, sizes = by_expert(expert, kept, len(up))
    given = tabled(groups(sizes, len(order), ROWS))
    made = ExpertsMLP.apply(x, up, down, order, expert.shape[1], given, matmul)
    return WeightedSum.apply(made, weight)


def check_halves(x: Tensor, **widths: int) -> None:
    """ValueError where copy engine or tensor cores cannot take x, or it lies elsewhere."""
    if dtype_of(x) not in HALVES:
        raise ValueError(f"x is {dtype_of(x)}, must be {' or '.join(HALVES)}")
    for name, size in widths.items():
        if size % EIGHT:
            raise ValueError(f"{name} is {size}, must be a multiple of {EIGHT}")
    check_device("x", x)


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The kernels of the forward and the backward pass of `mlp`, as a Hopper GPU launches them."""
    if target != "sm_90":
        raise ValueError(
            f"target is {target!r}, must be 'sm_90': its tensor cores and copies are Hopper's own"
        )
    return face.launched(mlp, target, **kind)
