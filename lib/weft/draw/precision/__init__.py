"""Pictures of numbers: bits and ranges, gradients and the loss scale."""

from weft.draw.precision.formats import bits_svg, numbers_svg, ranges_svg, told
from weft.draw.precision.scale import histogram_svg, scale_svg
from weft.draw.precision.sums import sharing_svg, sums_svg

__all__ = [
    "bits_svg",
    "histogram_svg",
    "numbers_svg",
    "ranges_svg",
    "scale_svg",
    "sharing_svg",
    "sums_svg",
    "told",
]
