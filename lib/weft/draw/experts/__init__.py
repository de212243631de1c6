"""Pictures of experts: a choice and its knob, tokens under way, one world in two shapes, loads."""

from weft.draw.experts.chairs import chairs_svg
from weft.draw.experts.loads import TOKENS, loads_svg
from weft.draw.experts.office import office_svg
from weft.draw.experts.switchboard import switchboard_svg

__all__ = ["TOKENS", "chairs_svg", "loads_svg", "office_svg", "switchboard_svg"]
