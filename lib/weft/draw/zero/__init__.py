"""Pictures of ZeRO: who keeps what, and a step in time."""

from weft.draw.zero.shares import shares_svg
from weft.draw.zero.time import buckets_svg, steps_svg

__all__ = [
    "buckets_svg",
    "shares_svg",
    "steps_svg",
]
