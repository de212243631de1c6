"""Pictures of FlashAttention-3: who works when on a multiprocessor, and which block does what."""

from weft.draw.hopper.overlaps import overlaps_svg, ring_svg
from weft.draw.hopper.registers import held_svg
from weft.draw.hopper.schedule import room, steady, turns, units
from weft.draw.hopper.tile_scheduler import loads_svg

__all__ = [
    "held_svg",
    "loads_svg",
    "overlaps_svg",
    "ring_svg",
    "room",
    "steady",
    "turns",
    "units",
]
