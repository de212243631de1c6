"""Pictures of layouts: ranks as an odometer, a batch dealt out, what hides, and steps as sums."""

from weft.draw.composing.atlas import atlas_svg, best
from weft.draw.composing.dealt import BATCH, dealt_svg
from weft.draw.composing.designs import (
    bloom,
    found,
    interleaved,
    llama70,
    llama405,
    long,
    ranked,
    reasons,
    short,
    trillion,
    worst,
)
from weft.draw.composing.lanes import lanes_svg
from weft.draw.composing.odometer import odometer_svg
from weft.draw.composing.published import published_svg
from weft.draw.composing.steps import kinds, steps_svg, variants, worked
from weft.draw.composing.tried import agreement, said, took, tried, tried_svg

__all__ = [
    "BATCH",
    "agreement",
    "atlas_svg",
    "best",
    "bloom",
    "dealt_svg",
    "found",
    "interleaved",
    "kinds",
    "lanes_svg",
    "llama70",
    "llama405",
    "long",
    "odometer_svg",
    "published_svg",
    "ranked",
    "reasons",
    "said",
    "short",
    "steps_svg",
    "took",
    "tried",
    "tried_svg",
    "trillion",
    "variants",
    "worked",
    "worst",
]
