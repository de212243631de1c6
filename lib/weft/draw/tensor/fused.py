"""Two matrices stored as one, cut as one and cut each: which columns a rank multiplies."""

from weft.draw.figure import INK, Figure
from weft.draw.tensor.states import RANKS, box, said
from weft.plan.arguments import whole

WIDE, CELL, HIGH, TOP = 350, 36, 24, 66
WAYS = "as one matrix: wrong", "each: right"


def fused_svg(t: int = 2, columns: int = 4) -> str:
    """Gate and up of `columns` each in one matrix, and what t ranks get of it in two ways.

    Below each way, a rank's halves as the layer takes them: the first for a gate.
    """
    t = whole("t", t, least=2, most=2)
    columns = whole("columns", columns, least=2, most=4)
    names = [f"{kind}{'₀₁₂₃'[i]}" for kind in "gu" for i in range(columns)]
    figure = Figure.small(
        WIDE, 2 * TOP + 96, "Gate and up in one matrix, on two ranks", _describe(), largest=1.5
    )
    half = len(names) // t
    strokes = [names[r * half : (r + 1) * half] for r in range(t)]
    part = columns // t
    each = [
        names[r * part : (r + 1) * part] + names[columns + r * part : columns + (r + 1) * part]
        for r in range(t)
    ]
    for i, (way, ranks) in enumerate(zip(WAYS, (strokes, each), strict=True)):
        y = 14 + i * (TOP + 48)
        figure.words(0, y, f"cut {way}", font_weight="bold")
        owner = {name: r for r, held in enumerate(ranks) for name in held}
        for j, name in enumerate(names):
            _cell(figure, j * CELL, y + 10, name, owner[name])
        for r, held in enumerate(ranks):
            x = r * (WIDE / 2 + 4)
            middle = len(held) // 2
            figure.words(x, y + 56, f"rank {r}: gate × up", font_size=11)
            for k in range(middle):
                left = x + k * 2.1 * CELL
                _cell(figure, left, y + 62, held[k], r, 0.8)
                said(figure, left + 0.92 * CELL, y + 78, "×")
                _cell(figure, left + 1.02 * CELL, y + 62, held[middle + k], r, 0.8)
    return str(figure)


def _cell(figure: Figure, x: float, y: float, name: str, rank: int, size: float = 1.0) -> None:
    wide = size * CELL - 2
    box(figure, x, y, wide, HIGH, RANKS[rank].paint(), f"column {name}, rank {rank}")
    look = {"text_anchor": "middle", "font_size": 11, "fill": INK, "pointer_events": "none"}
    figure.words(x + wide / 2, y + 16, name, **look)


def _describe() -> str:
    return (
        "A matrix of four gate columns and four up columns on two ranks. Cut as one, rank 0 "
        "has all gates and rank 1 all ups, and what a rank multiplies with each other are gates "
        "with gates and ups with ups. Cut each, a rank has two gates and the two ups that belong "
        "to them."
    )
