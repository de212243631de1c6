"""Pictures of Griffin: its gate, its scan on a GPU, its ring, its gates over ranks, its memory."""

from weft.draw.griffin.blocks import blocks_svg
from weft.draw.griffin.gate import gate_svg
from weft.draw.griffin.kept import windows_svg
from weft.draw.griffin.passes import passes_svg
from weft.draw.griffin.reach import CHANNELS, LENGTHS, reach_svg, scan_share, split
from weft.draw.griffin.ring import ring_svg

__all__ = [
    "CHANNELS",
    "LENGTHS",
    "blocks_svg",
    "gate_svg",
    "passes_svg",
    "reach_svg",
    "ring_svg",
    "scan_share",
    "split",
    "windows_svg",
]
