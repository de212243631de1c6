"""Tokens on their way: sorted by expert, sent to its rank, computed, and home again."""

from weft.draw.figure import INK, OUTLINE, Figure
from weft.draw.zero import HUES

CHOICES = ((3, 0, 5, 0, 2), (1, 3, 3, 0), (4, 0, 2, 5, 0, 1))  # of the tokens of each rank
EXPERTS = 2  # on a rank
WIDE, CELL, SIDE = 350, 118, 14
ROWS = (52, 124, 184, 244)


def office_svg() -> str:
    """Three ranks across, four moments down. A colour is a token's home, its digit its expert."""
    n = len(CHOICES)
    figure = Figure.small(
        WIDE, ROWS[-1] + 38, "Tokens sorted, sent, computed and sent home", _describe(),
        largest=1.5,
    )  # fmt: skip
    for r in range(n):
        figure.words(r * CELL + 4, 14, f"rank {r}", font_size=11, font_weight="bold")
        held = f"experts {EXPERTS * r}, {EXPERTS * r + 1}"
        figure.words(r * CELL + 4, 28, held, font_size=11)
        if r:
            x = r * CELL - 3
            figure.line(x, 4, x, ROWS[-1] + 22, stroke_opacity=0.25)
    came = [[(r, i) for i in range(len(row))] for r, row in enumerate(CHOICES)]
    by_expert = [sorted(row, key=_expert) for row in came]
    there = [[token for row in by_expert for token in row if _expert(token) // EXPERTS == r]
             for r in range(n)]  # fmt: skip
    names = "as they come", "sorted by expert", "at the experts", "home, in order"
    moments = dict(zip(names, (came, by_expert, there, came), strict=True))
    places = []
    for (name, ranks), y in zip(moments.items(), ROWS, strict=True):
        spots = {token: (r * CELL + 6 + i * SIDE, y) for r, row in enumerate(ranks)
                 for i, token in enumerate(row)}  # fmt: skip
        places.append(spots)
        last = max(x for x, _ in spots.values()) + SIDE + 5
        where = {names[1]: (4, y - 22), names[2]: (last, y + 11), names[3]: (4, y + SIDE + 14)}
        said = {names[1]: "sorted; counts:", names[2]: "at experts"}.get(
            name, name
        )  # off the lines
        figure.words(*where.get(name, (4, y - 6)), said, font_size=11)
    for above, below in ((places[1], places[2]), (places[2], places[3])):
        for token, (x, y) in above.items():
            to, down = below[token]
            figure.line(x + SIDE / 2, y + SIDE, to + SIDE / 2, down, stroke_opacity=0.3)
    for name, spots in zip(names, places, strict=True):
        for token, (x, y) in spots.items():
            _token(figure, token, x, y, f"{name}: token {token[1]} of rank {token[0]}")
    for r, row in enumerate(by_expert):
        to = [str(sum(_expert(token) == e for token in row)) for e in range(n * EXPERTS)]
        parts = (",".join(to[s : s + EXPERTS]) for s in range(0, len(to), EXPERTS))
        figure.words(r * CELL + 4, ROWS[1] - 6, " ".join(parts), font_size=11, font_weight="bold")
    return str(figure)


def _expert(token: tuple[int, int]) -> int:
    return CHOICES[token[0]][token[1]]


def _token(figure: Figure, token: tuple[int, int], x: float, y: float, tip: str) -> None:
    box = {"x": x, "y": y, "width": SIDE - 1, "height": SIDE}
    tip = f"{tip}, for expert {_expert(token)}"
    figure.mark("rect", **box, **HUES[token[0]].paint(), **OUTLINE, tip=tip)
    look = {"text_anchor": "middle", "font_size": 11, "fill": INK, "pointer_events": "none"}
    figure.words(x + SIDE / 2 - 0.5, y + 11, str(_expert(token)), **look)


def _describe() -> str:
    sent = "; ".join(
        f"rank {r} has tokens for experts {', '.join(map(str, row))}"
        for r, row in enumerate(CHOICES)
    )
    got = [sum(x // EXPERTS == r for row in CHOICES for x in row) for r in range(len(CHOICES))]
    return (
        f"Three ranks with two experts each, in four rows. As they come, {sent}. They are sorted "
        f"by expert, and each rank tells how many it has for every expert. Lines lead to the "
        f"experts' ranks, which get {got[0]}, {got[1]} and {got[2]} tokens, and lead back home."
    )
