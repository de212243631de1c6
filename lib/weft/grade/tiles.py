"""A tile memory that counts, for each element of each tensor, how often it is loaded and stored.

Bytes in all say too little of an answer: to read one half twice and the other half never moves as
much as to read all of it once.
"""

from __future__ import annotations

import torch

from weft.meter import Sram
from weft.meter.mode import paused
from weft.meter.storage import storage_of


class Tiles(Sram):
    """An Sram of `capacity` bytes that knows tensors outside it by name.

    They are contiguous and share no memory. `loads[name]` and `stores[name]` count the elements of
    each, in its shape.
    """

    def __init__(self, capacity: int, named: dict[str, torch.Tensor]) -> None:
        super().__init__(capacity)
        self.names = {x.data_ptr(): name for name, x in named.items() if x.numel()}
        self.loads = {name: torch.zeros_like(x, dtype=torch.int64) for name, x in named.items()}
        self.stores = {name: counts.clone() for name, counts in self.loads.items()}

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        """As in Sram, counted."""
        tile = super().load(tensor)
        self._count(self.loads, tensor)
        return tile

    def store(self, target: torch.Tensor, tile: torch.Tensor) -> None:
        """As in Sram, counted."""
        super().store(target, tile)
        self._count(self.stores, target)

    def _count(self, counts: dict[str, torch.Tensor], tensor: torch.Tensor) -> None:
        with paused():
            name = self.names.get(storage_of(tensor).data_ptr())
            if name is None:
                return
            every = counts[name].view(-1)
            places = torch.arange(len(every)).as_strided(
                tensor.shape, tensor.stride(), tensor.storage_offset()
            )
            every += torch.bincount(places.reshape(-1), minlength=len(every))

    @property
    def moved(self) -> dict[str, dict[str, list]]:
        """How often each element was moved: by "loads" or "stores", then by name, as lists."""
        kinds = {"loads": self.loads, "stores": self.stores}
        return {
            kind: {name: x.tolist() for name, x in counts.items()} for kind, counts in kinds.items()
        }
