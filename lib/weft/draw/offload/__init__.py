"""Pictures of offloading: where bytes live, updates on the host, what they cost, streams."""

from weft.draw.offload.computing import computing_svg
from weft.draw.offload.parts import parts_svg
from weft.draw.offload.places import levels_svg
from weft.draw.offload.stream import stream_svg
from weft.draw.offload.update import updates_svg

__all__ = [
    "computing_svg",
    "levels_svg",
    "parts_svg",
    "stream_svg",
    "updates_svg",
]
