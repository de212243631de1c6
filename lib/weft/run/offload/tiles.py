"""Memory-centric tiling: a large linear layer as several small ones, one after the other."""

import torch
from torch import Tensor, nn

from weft.plan.arguments import sizes
from weft.plan.collectives import chunks


class TiledLinear(nn.Module):
    """nn.Linear whose output features are dealt to `tiles`, the first ones having one more.

    A tile is a linear layer of its own, with its own rows of the weight. Forward and
    backward go from tile to tile, so what must be at hand of weight and gradient is one
    tile's, 1 / tiles of the layer's, wherever something else keeps the rest: under
    weft.run.offload.layers.Streamed, which reads and drops each tile by itself. In plain
    memory it is nn.Linear, in output and gradients.

    Rajbhandari et al. 2021, section 5.1.3.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        tiles: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        given = sizes(in_features=in_features, out_features=out_features, tiles=tiles)
        self.in_features, self.out_features, tiles = given
        if tiles > self.out_features:
            raise ValueError(f"tiles is {tiles}, must be at most out_features, {out_features}")
        bound = self.in_features**-0.5  # nn.Linear's start, whatever the tiles are
        self.tiles = nn.ModuleList()
        for rows in chunks(self.out_features, tiles):
            self.tiles.append(nn.Linear(in_features, rows, bias, device, dtype))
            for weight in self.tiles[-1].parameters():
                nn.init.uniform_(weight, -bound, bound)

    @classmethod
    def of(cls, linear: nn.Linear, tiles: int) -> "TiledLinear":
        """The same layer in tiles: copies of its rows."""
        weight, bias = linear.weight.detach(), linear.bias
        made = cls(*reversed(weight.shape), tiles, bias is not None, weight.device, weight.dtype)
        made.take(weight, None if bias is None else bias.detach())
        return made

    @torch.no_grad()
    def take(self, weight: Tensor, bias: Tensor | None) -> None:
        """Make these the weights: [out, in] and [out], each tile its rows."""
        counts = chunks(self.out_features, len(self.tiles))
        rows = weight.split(counts)
        ends = [None] * len(counts) if bias is None else bias.split(counts)
        for tile, row, end in zip(self.tiles, rows, ends, strict=True):
            tile.weight.copy_(row)
            if end is not None:
                tile.bias.copy_(end)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([tile(x) for tile in self.tiles], dim=-1)
