"""Why a mask keeps the three matrices from being regrouped: every query has a state of its own."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure
from weft.draw.linear.forms import HISTORY, INSIDE

T, LONG, SHORT = 6, 78, 26  # queries drawn; the length of a sequence, the width of a head
LINES = (
    ("(Q Kᵀ) V", "a T × T table, then V"),
    ("Q (Kᵀ V)", "one K × V matrix, then Q"),
    ("causal", "query i needs the sum up to i"),
)


def regroup_svg() -> str:
    """Sizes of (Q K^T) V and Q (K^T V); under a mask one sum up to each query."""
    row = LONG + 46
    figure = Figure.small(
        330, 3 * row + 6, "Two ways to multiply three matrices, and a mask",
        "Above, the product of Q and K transposed is a large square table, which then meets V. In "
        "the middle, K transposed times V is a small square, the state, which then meets Q. Below, "
        f"with a causal mask, the table is a triangle, and {T} queries stand each beside a small "
        "square of its own, as large as all others, and below it the keys that it has summed.",
        largest=1.4,
    )  # fmt: skip
    for line, (formula, told) in enumerate(LINES):
        top = line * row
        figure.words(0, top + 14, formula, font_weight="bold")
        figure.words(92, top + 14, told, font_size=11)
    top = 24
    _square(figure, 0, top, LONG, LONG, INSIDE, "Q Kᵀ: T × T")
    _sign(figure, LONG + 16, top + LONG / 2, "×")
    _square(figure, LONG + 32, top, SHORT, LONG, None, "V: T × V")
    _sign(figure, LONG + SHORT + 50, top + LONG / 2, "= O")
    top += row
    _square(figure, 0, top, SHORT, LONG, None, "Q: T × K")
    _sign(figure, SHORT + 16, top + LONG / 2, "×")
    _square(figure, SHORT + 32, top + (LONG - SHORT) / 2, SHORT, SHORT, HISTORY, "Kᵀ V: K × V")
    _sign(figure, 2 * SHORT + 50, top + LONG / 2, "= O")
    top += row
    each = LONG / T
    figure.mark("rect", x=0, y=top, width=LONG, height=LONG, fill_opacity=0.06)
    figure.boxes(
        [(j * each, top + i * each, each, each) for i in range(T) for j in range(i + 1)],
        **INSIDE.paint(), **OUTLINE,
    )  # fmt: skip
    with figure.group(font_size=11, text_anchor="middle"):
        for i in range(T):
            left = LONG + 24 + i * (SHORT + 11)
            box = {"x": left, "y": top + 4, "width": SHORT, "height": SHORT}
            figure.mark("rect", **box, **HISTORY.paint(), **OUTLINE, tip=f"the sum up to {i}")
            figure.words(left + SHORT / 2, top + SHORT + 19, f"S{'₀₁₂₃₄₅₆₇₈₉'[i]}")
            figure.words(left + SHORT / 2, top + SHORT + 34, f"0–{i}" if i else "0")
    figure.words(LONG + 24, top + LONG, "one state for each query; below, its keys", font_size=11)
    return str(figure)


def _square(figure, x, y, wide, high, colour, tip) -> None:
    look = colour.paint() if colour else {"fill_opacity": 0.12}
    figure.mark("rect", x=x, y=y, width=wide, height=high, tip=tip, **look, **OUTLINE)
    inside = {"fill": svg.INK} if colour else {}
    name = tip.partition(":")[0]
    if wide >= 9 * len(name):
        middle = (x + wide / 2, y + high / 2 + 4)
        figure.words(*middle, name, text_anchor="middle", font_size=11, **inside)
    elif high >= 40:
        figure.words(x + wide / 2, y + high / 2 + 4, name, text_anchor="middle", **inside)
    else:
        figure.words(x + wide / 2, y - 5, name, text_anchor="middle", font_size=11)


def _sign(figure, x, y, sign) -> None:
    figure.words(x, y + 4, sign, text_anchor="middle")
