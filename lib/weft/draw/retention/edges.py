"""The two edges of a chunk: how often the state fades before a read, a write before the end."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure
from weft.plan.arguments import sizes
from weft.plan.units import power

WIDE, NAME, BAR, ROW = 340, 30, 12, 18
MOST = 8  # rows that can be told apart
READ, WRITE = svg.TRAVEL, svg.FORWARD


def edges_svg(C: int = 4) -> str:
    """Above, how far the state before a chunk travels to each query; below, each key to the end.

    Between them a bar from the old state to the new one, across all tokens.

    Each token fades the state first, at a dashed line, and then adds its own write: whatever
    crosses so many lines has faded so many times.
    """
    (C,) = sizes(C=C)
    if C > MOST:
        raise ValueError(f"C is {C}, must be at most {MOST} to be told apart")
    each = (WIDE - 2 * NAME - 40) / C
    top, high = 58, 2 * C * ROW + 50
    figure = Figure.small(
        WIDE, top + high + 26, f"The two edges of a chunk of {C}", _describe(C), largest=1.5
    )
    meanings = (("read by a query", READ), ("written by a key", WRITE))
    svg.legend(figure, [(name, hue.paint() | OUTLINE) for name, hue in meanings])
    first = NAME + 4

    def fade(t: int) -> float:
        """Where token t fades the state."""
        return first + t * each + 8

    with figure.group(text_anchor="middle", font_size=11):
        for t in range(C):
            figure.words(fade(t) + each / 2, 40, f"token {t}" if each > 52 else str(t))
    for t in range(C):
        look = {"stroke_dasharray": "3 3", "stroke_opacity": 0.6}
        figure.line(fade(t), 46, fade(t), top + high, **look)
    end = fade(C - 1) + each
    with figure.group(font_weight="bold"):
        figure.words(2, top + 12, "S")
        figure.words(end + 4, top + C * ROW + 22, "new S")
    for i in range(C):
        y = top + i * ROW
        box = {"x": first - 6, "y": y, "width": fade(i) + 6 - first + 6, "height": BAR}
        tip = f"query {i} reads the state after {i + 1} decays"
        figure.mark("rect", **box, **READ.paint(), **OUTLINE, tip=tip)
        _power(figure, fade(i) + 12, y + 10, i + 1)
    across = top + C * ROW + 12
    box = {"x": first - 6, "y": across, "width": end - first + 6, "height": BAR}
    tip = f"the state is in the new one after {C} decays"
    figure.mark("rect", **box, **READ.paint(0.5), **OUTLINE, tip=tip)
    figure.words(first, across + 10, power("γ", C), font_size=11, fill=svg.INK)
    middle = across + ROW + 12
    for j in range(C):
        y = middle + j * ROW
        box = {"x": fade(j) + 6, "y": y, "width": end - fade(j) - 6, "height": BAR}
        tip = f"key {j} is in the new state after {C - 1 - j} decays"
        figure.mark("rect", **box, **WRITE.paint(), **OUTLINE, tip=tip)
        _power(figure, fade(j) - 4, y + 10, C - 1 - j, "end")
    figure.words(0, top + high + 18, "A dashed line: the state times γ.", font_size=11)
    return str(figure)


def _power(figure: Figure, x: float, y: float, exponent: int, anchor: str = "start") -> None:
    figure.words(x, y, power("γ", exponent), text_anchor=anchor, font_size=13)


def _describe(C: int) -> str:
    reads = ", ".join(f"query {i} after {i + 1}" for i in range(C))
    writes = ", ".join(f"key {j} after {C - 1 - j}" for j in range(C))
    return (
        f"{C} tokens from left to right, a dashed line at the beginning of each. Bars from the "
        f"state S on the left to each query, which cross as many lines as there are decays: "
        f"{reads}. Below them one bar from S to the new state across all {C}, and "
        f"bars from each key to the new state on the right: {writes}."
    )
