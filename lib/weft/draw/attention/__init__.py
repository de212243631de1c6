"""Pictures of attention in tiles: the visits, the orders of the loops, the bytes moved."""

from weft.draw.attention.orders import SPLIT, orders_svg
from weft.draw.attention.tiles import NAMES, tiles_svg
from weft.draw.attention.traffic import KIB, moved, traffic_svg

__all__ = [
    "KIB",
    "NAMES",
    "SPLIT",
    "moved",
    "orders_svg",
    "tiles_svg",
    "traffic_svg",
]
