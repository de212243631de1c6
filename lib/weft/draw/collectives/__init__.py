"""Pictures of collectives: who holds what after each step, what connects them, what it takes."""

from weft.draw.collectives.cluster import cluster_svg
from weft.draw.collectives.film import film_svg
from weft.draw.collectives.pictograms import pictograms_svg
from weft.draw.collectives.times import curves_svg, times_svg

__all__ = [
    "cluster_svg",
    "curves_svg",
    "film_svg",
    "pictograms_svg",
    "times_svg",
]
