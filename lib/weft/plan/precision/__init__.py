"""Number formats bit by bit, the loss scale, and what a step keeps in which format."""

from weft.plan.precision.formats import FORMATS, Format, add, bell, fates, known, least_update
from weft.plan.precision.scale import LossScale, delayed
from weft.plan.precision.state import RECIPES, Recipe

__all__ = [
    "FORMATS",
    "RECIPES",
    "Format",
    "LossScale",
    "Recipe",
    "add",
    "bell",
    "delayed",
    "fates",
    "known",
    "least_update",
]
