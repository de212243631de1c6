"""Pictures of sparse attention: pairs and blocks, lists, the reach of layers, the break-even."""

from weft.draw.sparse.cone import STACKS, cone_svg, reached
from weft.draw.sparse.even import even_svg
from weft.draw.sparse.rows import lists_svg
from weft.draw.sparse.squares import kinds, seen
from weft.draw.sparse.tiles import tiles_svg

__all__ = [
    "STACKS",
    "cone_svg",
    "even_svg",
    "kinds",
    "lists_svg",
    "reached",
    "seen",
    "tiles_svg",
]
