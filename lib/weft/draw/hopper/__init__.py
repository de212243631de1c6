"""Pictures of FlashAttention-3: who works when on a multiprocessor, and which block does what."""

from weft.draw.hopper.schedule import room, steady, turns, units
from weft.draw.hopper.tile_scheduler import loads_svg

__all__ = [
    "loads_svg",
    "room",
    "steady",
    "turns",
    "units",
]
