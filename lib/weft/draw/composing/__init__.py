"""Pictures of layouts: ranks as an odometer, a batch dealt out, what hides behind what."""

from weft.draw.composing.dealt import BATCH, dealt_svg
from weft.draw.composing.lanes import lanes_svg
from weft.draw.composing.odometer import odometer_svg

__all__ = ["BATCH", "dealt_svg", "lanes_svg", "odometer_svg"]
