"""Pictures of tensor parallelism: two cuts, both passes, the wall, a layer over its ranks."""

from weft.draw.tensor.conjugate import conjugate_svg
from weft.draw.tensor.cut import cut_svg
from weft.draw.tensor.fused import fused_svg
from weft.draw.tensor.layer import bytes_kept, chosen_of, dense, layer_svg
from weft.draw.tensor.wall import REACHED, wall_svg

__all__ = [
    "REACHED",
    "bytes_kept",
    "chosen_of",
    "conjugate_svg",
    "cut_svg",
    "dense",
    "fused_svg",
    "layer_svg",
    "wall_svg",
]
