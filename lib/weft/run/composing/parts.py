"""Which part of each tensor of the whole decoder a rank has, whoever has cut it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.run.experts import divided
from weft.run.tensor import cuts

Runs = list[list[int]]  # [first, end] of columns that follow each other


class CutPart(NamedTuple):
    """Some columns of a dim of a whole tensor: part number `index` of those that ranks have."""

    dim: int
    columns: Tensor
    index: int

    @property
    def runs(self) -> Runs:
        """The columns as JSON has them."""
        found: Runs = []
        for column in self.columns.tolist():
            if found and found[-1][1] == column:
                found[-1][1] += 1
            else:
                found.append([column, column + 1])
        return found

    def of(self, whole: Tensor) -> Tensor:
        """The part of a whole tensor."""
        return whole.index_select(self.dim, self.columns.to(whole.device))


def columns_of(runs: Sequence[Sequence[int]]) -> Tensor:
    """The columns that `CutPart.runs` names."""
    return torch.cat([torch.arange(first, end) for first, end in runs])


def parts_of(module: nn.Module) -> dict[str, CutPart]:
    """The tensors of which this rank has a part: of matrices, of words, or of experts."""
    found = {name: CutPart(cut.dim, cut.mine, cut.ranks.rank) for name, cut in cuts(module).items()}
    for name, layer in divided(module).items():
        mine = torch.arange(layer.total).tensor_split(layer.n)[layer.rank]
        found[name] = CutPart(0, mine, layer.rank)
    return found
