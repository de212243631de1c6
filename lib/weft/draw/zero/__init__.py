"""Pictures of ZeRO: who keeps what, a step in time, what is whole when, meshes and checkpoints."""

from weft.draw.zero.checkpoint import checkpoint_svg
from weft.draw.zero.flat import flat_svg
from weft.draw.zero.mesh import mesh_svg
from weft.draw.zero.shards import HUES, shards_svg
from weft.draw.zero.time import buckets_svg, steps_svg
from weft.draw.zero.whole import whole_svg

__all__ = [
    "HUES",
    "buckets_svg",
    "checkpoint_svg",
    "flat_svg",
    "mesh_svg",
    "shards_svg",
    "steps_svg",
    "whole_svg",
]
