"""What a rank can have of a tensor: all of it, a part, or a summand. Every picture's colours."""

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure, dashed
from weft.draw.zero import HUES

RANKS = HUES  # a rank's columns, rows or tokens
WHOLE = {"fill": "currentColor", "fill_opacity": 0.28}
PARTIAL = svg.WAITING
MATRIX = dashed("2 2", 0.6)
KEYS = [
    ("whole, the same on all ranks", WHOLE),
    ("a part of a sum", PARTIAL.paint()),
]


def box(figure: Figure, x: float, y: float, wide: float, high: float, look: dict, tip: str) -> None:
    """A tensor, or a part of one."""
    figure.mark("rect", x=x, y=y, width=wide, height=high, **(OUTLINE | look), tip=tip)


def said(figure: Figure, x: float, y: float, string: str, ink: bool = False, **look) -> None:
    """A small word in the middle of something; in ink on a colour."""
    colour = {"fill": INK, "pointer_events": "none"} if ink else {}
    figure.words(x, y, string, **({"text_anchor": "middle", "font_size": 11} | colour | look))


def arrow(figure: Figure, x: float, y: float, to: float) -> None:
    """A level arrow from x to `to`, either way."""
    back = 4 if to > x else -4
    figure.line(x, y, to, y, stroke_width=1.25)
    head = f"M{to - back} {y - 3}L{to} {y}L{to - back} {y + 3}"
    figure.mark("path", d=head, fill="none", stroke="currentColor", stroke_width=1.25)
