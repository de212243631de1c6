"""Pictures of ring attention: two jars, the folded strip, a pass in time, gradients on tour."""

from weft.draw.ring.best import LENGTHS, METHODS_SHOWN, RANKS, best_svg, costs
from weft.draw.ring.fold import fold_svg
from weft.draw.ring.jars import PARTS, jars_svg, poured
from weft.draw.ring.steps import TOKENS, steps_svg
from weft.draw.ring.tour import tour_svg

__all__ = [
    "LENGTHS",
    "METHODS_SHOWN",
    "PARTS",
    "RANKS",
    "TOKENS",
    "best_svg",
    "costs",
    "fold_svg",
    "jars_svg",
    "poured",
    "steps_svg",
    "tour_svg",
]
