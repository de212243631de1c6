"""Pictures of collectives: who holds what after each step, what connects them, what it takes."""

from weft.draw.collectives.boxes import box_svg
from weft.draw.collectives.film import film_svg
from weft.draw.collectives.times import curves_svg, times_svg

__all__ = [
    "box_svg",
    "curves_svg",
    "film_svg",
    "times_svg",
]
