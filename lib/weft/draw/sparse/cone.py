"""How far layers of windows see: a cone that gets wider and dimmer, or has holes."""

from math import sqrt

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure
from weft.plan.sparse import spread
from weft.plan.units import percent

STACKS = {  # dilations from the last layer down, three keys a query in each
    "three windows of 3": (1, 1, 1),
    "dilation 2 in each": (2, 2, 2),
    "dilations 4, 2, 1": (4, 2, 1),
}
WINDOW, COLUMNS = 2, 15
WIDE, LEFT, EACH, HIGH, PANEL = 352, 44, 20, 19, 122
HUE = svg.FORWARD


def cone_svg() -> str:
    """Three layers, three times: what share of each earlier token reaches the last one's output.

    A row is a layer, from the output down to the tokens; shares are as if all keys weighed alike.
    """
    figure = Figure.small(
        WIDE, PANEL * len(STACKS) + 16, "What reaches a token through three layers of windows",
        _describe(), largest=1.4,
    )  # fmt: skip
    for i, (name, dilations) in enumerate(STACKS.items()):
        _panel(figure, PANEL * i, name, dilations)
    figure.words(LEFT + COLUMNS * EACH / 2, PANEL * len(STACKS) + 8, "tokens, the last one right",
                 text_anchor="middle", font_size=11)  # fmt: skip
    return str(figure)


def _panel(figure: Figure, top: float, name: str, dilations: tuple[int, ...]) -> None:
    figure.words(0, top + 14, name, font_weight="bold")
    for row in range(len(dilations) + 1):
        y = top + 22 + row * (HIGH + 3)
        figure.words(0, y + 14, "output" if not row else f"layer {len(dilations) - row}"
                     if row < len(dilations) else "tokens", font_size=11)  # fmt: skip
        shares = reached(dilations[:row])
        for back in range(COLUMNS):
            box = {"x": LEFT + (COLUMNS - 1 - back) * EACH, "y": y, "width": EACH - 1.5}
            box["height"] = HIGH
            share = shares.get(back, 0.0)
            if not share:
                figure.mark("rect", **box, fill_opacity=0.04, **OUTLINE)
                continue
            tip = f"{name}, {back} back: {percent(share, 2)}"
            figure.mark("rect", **box, **HUE.paint(1 - sqrt(share)), **OUTLINE, tip=tip)
            look = {"text_anchor": "middle", "font_size": 10, "fill": INK}
            look["pointer_events"] = "none"
            figure.words(box["x"] + EACH / 2 - 0.75, y + 13, f"{100 * share:.0f}", **look)


def reached(dilations: tuple[int, ...]) -> dict[int, float]:
    """The share of each distance back after these layers."""
    return spread([(WINDOW, d) for d in dilations]) if dilations else {0: 1.0}


def _describe() -> str:
    told = []
    for name, dilations in STACKS.items():
        shares = reached(dilations)
        said = ", ".join(f"{back} back {percent(share, 2)}" for back, share in shares.items())
        told.append(f"{name}: {said}")
    return (
        "Three stacks of rows, the output above and the tokens below; each row is wider and "
        f"fainter than the one above it. Shares in the lowest row. {'; '.join(told)}."
    )
