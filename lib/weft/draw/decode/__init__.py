"""Pictures of a KV cache: its blocks, its kinds, who is served from it, and how fast."""

from weft.draw.decode.blocks import memory_svg
from weft.draw.decode.kinds import kinds_svg
from weft.draw.decode.serving import leases_svg
from weft.draw.decode.throughput import speculation_svg, throughput_svg
from weft.draw.decode.timeline import timeline_svg

__all__ = [
    "kinds_svg",
    "leases_svg",
    "memory_svg",
    "speculation_svg",
    "throughput_svg",
    "timeline_svg",
]
