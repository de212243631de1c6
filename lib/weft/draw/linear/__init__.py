"""Pictures of attention with a state: its forms, the mask, the delta rule, its solve, its costs."""

from weft.draw.linear.board import board_svg
from weft.draw.linear.costs import CHIPS_SHOWN, LENGTHS, costs_svg, token_seconds
from weft.draw.linear.forms import HISTORY, INSIDE, fade, forms_svg, staircase, table, tape
from weft.draw.linear.kept import kept_svg
from weft.draw.linear.regroup import regroup_svg
from weft.draw.linear.solve import solve_svg
from weft.draw.linear.subchunks import subchunks_svg

__all__ = [
    "CHIPS_SHOWN",
    "HISTORY",
    "INSIDE",
    "LENGTHS",
    "board_svg",
    "costs_svg",
    "fade",
    "forms_svg",
    "kept_svg",
    "regroup_svg",
    "solve_svg",
    "staircase",
    "subchunks_svg",
    "table",
    "tape",
    "token_seconds",
]
