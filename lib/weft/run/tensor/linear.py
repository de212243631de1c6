"""The two cuts of a matrix: by its outputs, after which nothing is sent, and by its inputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from weft.plan.arguments import instance, sizes
from weft.plan.tensors import dtype_of, tensor
from weft.run.collectives import Group, agreed
from weft.run.digest import digest
from weft.run.tensor.exchange import TensorRanks
from weft.run.tensor.functions import ColumnMatmul, RowMatmul, Take


class CutLinear(nn.Module):
    """A part of a linear layer, by its outputs (dim 0 of the weight) or its inputs (dim 1).

    What is cut are `blocks` matrices of the same size side by side, as q, k and v are, each into
    units of `unit` columns, as heads are. Rank r gets tensor_split's r-th part of the units of each
    block; one cut of all columns would have the right shape, and give one rank q and another v.
    Without `checks` whoever has made the layer sees to it that ranks agree.

    `defer` is who takes over the weight's gradient, if anybody does: weft.run.pipeline's schedules
    with a W of their own set it.
    """

    dim: int

    def __init__(
        self,
        linear: nn.Linear,
        world: Group,
        sequence_parallel: bool = False,
        overlap: bool = False,
        blocks: int = 1,
        unit: int = 1,
        checks: bool = True,
    ):
        super().__init__()
        self.ranks = TensorRanks(world, sequence_parallel, overlap)
        self.checks = checks
        self.defer: Callable[[], Take] | None = None
        how = {"sequence_parallel": bool(sequence_parallel), "overlap": bool(overlap)}
        if checks:
            agreed(self.ranks.group, lambda: (None, how | self._form(linear, blocks, unit)))
        self.total = linear.weight.shape[self.dim]
        columns = torch.arange(self.total).view(blocks, -1, unit)
        self.columns = [part.flatten() for part in columns.tensor_split(self.ranks.n, 1)]
        mine = self.columns[self.ranks.rank].to(linear.weight.device)
        self.weight = cut(linear.weight, self.dim, mine)
        bias = linear.bias
        if bias is not None:
            bias = cut(bias, 0, mine) if self.dim == 0 else trained(bias.detach().clone(), bias)
        self.register_parameter("bias", bias)

    def _form(self, linear: nn.Linear, blocks: int, unit: int) -> dict[str, Any]:
        """What must be the same on every rank; ValueError for what cannot be cut."""
        instance(nn.Linear, linear=linear)
        blocks, unit = sizes(blocks=blocks, unit=unit)
        total = linear.weight.shape[self.dim]
        side = ("outputs", "inputs")[self.dim]
        if total % (blocks * unit):
            rule = f"must divide linear's {total} {side}"
            raise ValueError(f"blocks * unit is {blocks} * {unit}, {rule}")
        if total // (blocks * unit) < self.ranks.n:
            units = f"{total // (blocks * unit)} {side}" + (f" of {unit}" if unit > 1 else "")
            raise ValueError(f"linear has {units} for {self.ranks.n} ranks, must have one for each")
        form = {"linear's shape": list(linear.weight.shape), "bias": linear.bias is not None}
        form |= {"linear's dtype": dtype_of(linear.weight), "blocks": blocks, "unit": unit}
        return form | {"the digest of linear's weight": fingerprint(linear.weight)}

    @property
    def how(self) -> tuple[TensorRanks, Take]:
        """What a matmul of this layer's is told beside its tensors, anew for each forward."""
        return self.ranks, self.defer() if self.defer else None

    def _check(self, x: Tensor, last: int) -> None:
        """Raise ValueError, on all ranks, unless all were given x of one shape that fits."""
        if not self.checks:
            return

        def mine() -> tuple[None, dict[str, Any]]:
            own = self.weight
            form = (*getattr(x, "shape", ())[:-1], last)
            told = f"[.., {last}] of linear"
            tensor("x", x, told, form, dtypes=(dtype_of(own),), beside=("linear", own))
            if self.ranks.sequence_parallel:
                check_time(x, self.ranks, whole=self.dim == 1)
            lead = list(x.shape[:-1])
            return None, {"x's shape but for its last dim": lead, "x's requires_grad":
                          x.requires_grad and torch.is_grad_enabled()}  # fmt: skip

        agreed(self.ranks.group, mine)


class ColumnLinear(CutLinear):
    """A linear layer of which each rank has a part of the outputs: [.., D] to [.., F/t].

    All ranks give the same x, and are given the whole gradient of it: backward has one all-reduce,
    while the weight's gradient is computed. With `sequence_parallel` x is [B, T/t, D], gathered in
    forward and kept, and the gradient's sum is scattered; with `overlap` besides, both travel in t
    parts while their matmuls go on. `blocks` and `unit` say what is cut: CutLinear. `linear`, the
    same on every rank, is left as it was.
    """

    dim = 0

    def forward(self, x: Tensor, gathered: Tensor | None = None) -> Tensor:
        """With `gathered`, the whole of x which a rank has by chance, nothing is gathered."""
        self._check(x, self.weight.shape[1])
        return ColumnMatmul.apply(x, self.weight, self.bias, *self.how, gathered)


class RowLinear(CutLinear):
    """A linear layer of which each rank has a part of the inputs: [.., F/t] to [.., D].

    What comes out is the whole sum, by an all-reduce, and then the bias, which all have and one
    adds. With `sequence_parallel` the sum is scattered, [B, T/t, D], and its gradient gathered, of
    which the bias's comes out whole. `overlap`, `blocks` and `unit` are as in ColumnLinear.
    """

    dim = 1

    def forward(self, x: Tensor) -> Tensor:
        self._check(x, self.weight.shape[1])
        return RowMatmul.apply(x, self.weight, self.bias, *self.how)


def cut(weight: Tensor, dim: int, mine: Tensor) -> nn.Parameter:
    """A copy of some rows or columns, as a parameter."""
    return trained(weight.detach().index_select(dim, mine), weight)


def trained(x: Tensor, like: Tensor) -> nn.Parameter:
    """A parameter, trained if another one is."""
    return nn.Parameter(x, requires_grad=like.requires_grad)


def fingerprint(x: Tensor) -> str:
    """A digest of a tensor's bytes."""
    return digest(memoryview(x.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()))


def check_time(x: Tensor, ranks: TensorRanks, whole: bool) -> None:
    """ValueError unless x is [B, T, ..], and a whole T divides by the ranks."""
    if x.dim() != 3:
        raise ValueError(f"x has {x.dim()} dims, must have [B, T, D] with sequence_parallel")
    if whole and x.shape[1] % ranks.n:
        rule = f"must divide by the {ranks.n} ranks with sequence_parallel"
        raise ValueError(f"x has {x.shape[1]} tokens in time, {rule}")
