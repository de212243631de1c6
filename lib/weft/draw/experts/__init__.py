"""Pictures of experts: a choice and its knob, tokens under way, two shapes, loads, a collapse."""

from weft.draw.experts.chairs import chairs_svg
from weft.draw.experts.collapse import collapse_svg
from weft.draw.experts.loads import TOKENS, loads_svg
from weft.draw.experts.office import office_svg
from weft.draw.experts.switchboard import switchboard_svg

__all__ = ["TOKENS", "chairs_svg", "collapse_svg", "loads_svg", "office_svg", "switchboard_svg"]
