"""Four ways to keep keys and values: what is in the cache, and which query heads read it."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Colour, Figure

WIDE, PANEL, HEADS, STEP = 480, 232, 8, 26
QUERY = Colour("weft-query", "#99DDFF")
KEY, VALUE = Colour("weft-key", "#EEDD88"), Colour("weft-value", "#EE8866")
LATENT = Colour("weft-latent", "#44BB99")
HIGH = 104
ROWS = (
    ("MHA: a pair for each head", 8),
    ("GQA: a pair for a group", 2),
    ("MQA: one pair", 1),
    ("MLA: one latent", 0),
)


def kinds_svg() -> str:
    """Four panels with eight query heads each; below them what a layer keeps of one token."""
    figure = Figure.small(
        WIDE,
        30 + 2 * (HIGH + 22),
        "What the cache keeps of one token, in four kinds of attention",
        "Eight query heads in each panel. In multi-head attention each has its own key and value; "
        "in grouped-query attention four heads share a pair; in multi-query attention all share "
        "one; in latent attention all read one vector, of which all but the last part serves as "
        "the value, too.",
        largest=1.4,
    )
    keys = [("query head", QUERY), ("key", KEY), ("value", VALUE), ("latent, both", LATENT)]
    svg.legend(figure, [(word, colour.paint() | OUTLINE) for word, colour in keys])
    for i, (name, pairs) in enumerate(ROWS):
        left, top = i % 2 * (WIDE - PANEL), 30 + i // 2 * (HIGH + 22)
        figure.words(left, top + 12, name, font_weight="bold")
        _panel(figure, left, top + 22, pairs)
    return str(figure)


def _panel(figure: Figure, left: float, top: float, pairs: int) -> None:
    below = top + 56
    heads = [left + 12 + STEP * i for i in range(HEADS)]
    middle = left + 12 + STEP * (HEADS - 1) / 2
    for i, x in enumerate(heads):
        at = heads[0] + (i * pairs // HEADS + 0.5) * STEP * HEADS / pairs - 13 if pairs else middle
        figure.line(x, top + 8, at, below, stroke_opacity=0.5)
    for i, x in enumerate(heads):
        tip = f"query head {i}"
        figure.mark("circle", cx=x, cy=top + 6, r=6, **QUERY.paint(), **OUTLINE, tip=tip)
    for pair in range(pairs):
        at = heads[0] + (pair + 0.5) * STEP * HEADS / pairs - 13
        for x, colour, tip in ((at - 10, KEY, "a key"), (at, VALUE, "a value")):
            box = {"x": x, "y": below, "width": 10, "height": 20}
            figure.mark("rect", **box, **colour.paint(), **OUTLINE, tip=tip)
    if not pairs:
        wide, rope = 40.0, 5.0  # 512 and 64 elements where a key and a value of 128 take 20
        box = {"y": below, "height": 20}
        figure.mark("rect", x=middle - 22, width=wide, **box, **LATENT.paint(), **OUTLINE,
                    tip="512 elements, keys and values of all heads")  # fmt: skip
        figure.mark("rect", x=middle - 22 + wide, width=rope, **box, **KEY.paint(), **OUTLINE,
                    tip="64 elements of the key for the position")  # fmt: skip
