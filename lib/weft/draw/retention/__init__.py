"""Pictures of retention: a chunk's two edges, its scales, its norm, and what serving moves."""

from weft.draw.retention.edges import edges_svg
from weft.draw.retention.fades import SHOWN, fades_svg
from weft.draw.retention.knob import knob_svg, normed
from weft.draw.retention.served import KV_HEADS, LENGTHS, beside, served_svg

__all__ = [
    "KV_HEADS",
    "LENGTHS",
    "SHOWN",
    "beside",
    "edges_svg",
    "fades_svg",
    "knob_svg",
    "normed",
    "served_svg",
]
