"""Pictures of a KV cache: its blocks, its bytes, and who is served from it."""

from weft.draw.decode.blocks import memory_svg
from weft.draw.decode.bytes import bytes_svg
from weft.draw.decode.serving import leases_svg, shares_svg

__all__ = [
    "bytes_svg",
    "leases_svg",
    "memory_svg",
    "shares_svg",
]
