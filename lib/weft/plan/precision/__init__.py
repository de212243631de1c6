"""Number formats bit by bit, the loss scale, and what a step keeps in which format."""

from weft.plan.precision.formats import FORMATS, Format, add, bell, fates, known, least_update
from weft.plan.precision.scale import Scale, delayed
from weft.plan.precision.state import RECIPES, Recipe

__all__ = [
    "FORMATS",
    "RECIPES",
    "Format",
    "Recipe",
    "Scale",
    "add",
    "bell",
    "delayed",
    "fates",
    "known",
    "least_update",
]
