"""Pictures of offloading: a stream through buffers, where bytes live, how fast links must be."""

from weft.draw.offload.places import levels_svg
from weft.draw.offload.rates import needed_svg, rates_svg
from weft.draw.offload.stream import stream_svg

__all__ = [
    "levels_svg",
    "needed_svg",
    "rates_svg",
    "stream_svg",
]
