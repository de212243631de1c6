"""Pictures of layouts: ranks as an odometer, what hides behind what."""

from weft.draw.composing.lanes import lanes_svg
from weft.draw.composing.odometer import odometer_svg

__all__ = ["lanes_svg", "odometer_svg"]
