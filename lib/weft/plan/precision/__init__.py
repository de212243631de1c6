"""Number formats bit by bit, the loss scale, and what a step keeps in which format."""

from weft.plan.precision import accepts
from weft.plan.precision.formats import (
    E2M1,
    FORMATS,
    Format,
    add,
    bell,
    decayed,
    fates,
    known,
    least_update,
)
from weft.plan.precision.gain import linear_gain, linear_part
from weft.plan.precision.scale import LossScale, blocked, delayed, in_blocks, outlier
from weft.plan.precision.state import RECIPES, Recipe
from weft.plan.precision.sums import WAYS, summed

__all__ = [
    "E2M1",
    "FORMATS",
    "RECIPES",
    "WAYS",
    "Format",
    "LossScale",
    "Recipe",
    "accepts",
    "add",
    "bell",
    "blocked",
    "decayed",
    "delayed",
    "fates",
    "in_blocks",
    "known",
    "least_update",
    "linear_gain",
    "linear_part",
    "outlier",
    "summed",
]
