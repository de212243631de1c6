"""Rows that are sorted by expert: where each expert's begin, and in which tile which rows lie.

All of it is computed where the sizes are, on the device: the host waits for nothing, and launches
as many programs as there can be tiles.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor


class Groups(NamedTuple):
    """Rows of E experts, and behind them rows of none, which come out as 0.

    first [E + 2]: where each group's rows begin, and the number of rows. tiles [E + 1]: how many
    tiles of `tile` rows the groups up to each one have. table, for kernels that want it, [3, most]:
    of each tile its group, its first row, and where the group's rows end.
    """

    first: Tensor
    tiles: Tensor
    table: Tensor | None
    tile: int
    rows: int

    @property
    def experts(self) -> int:
        """E, without the rows of none."""
        return len(self.tiles) - 1

    @property
    def most(self) -> int:
        """Tiles that there can be at most: every group may end inside one."""
        return triton.cdiv(self.rows, self.tile) + self.experts


def groups(sizes: Tensor, rows: int, tile: int) -> Groups:
    """Groups of so many rows each, in tiles; what the sizes say beyond `rows` is cut off."""
    ends = sizes.cumsum(0).clamp(max=rows)
    first = torch.nn.functional.pad(ends, (1, 0))
    first = torch.nn.functional.pad(first, (0, 1), value=rows)
    tiles = (first.diff() + tile - 1).div(tile, rounding_mode="floor").cumsum(0)
    return Groups(first.int(), tiles.int(), None, tile, rows)
