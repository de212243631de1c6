"""The same blocks listed twice: by rows for O and dQ, by columns for dK and dV."""

from weft.draw import figure as svg
from weft.draw.figure import INK, Figure
from weft.draw.sparse.squares import FULL, LOOKS, PARTIAL, kinds

SHOWN = {"T": 24, "block": 4, "window": 9, "globals": 1}
LEFT, TOP, EACH, WIDE = 46, 64, 28, 352


def lists_svg() -> str:
    """A small layout, each row's list beside it and each column's below it, full blocks first."""
    squares = kinds(**SHOWN)
    n = SHOWN["T"] // SHOWN["block"]
    rows = [_ordered({c: k for (r, c), k in squares.items() if r == i}) for i in range(n)]
    columns = [_ordered({r: k for (r, c), k in squares.items() if c == i}) for i in range(n)]
    deepest = max(map(len, columns))
    figure = Figure.small(
        WIDE, TOP + n * EACH + 34 + deepest * 17 + 59, "Lists of blocks, by rows and by columns",
        _describe(rows, columns), largest=1.3,
    )  # fmt: skip
    svg.legend(figure, [(f"{kind} block", look) for kind, look in LOOKS.items()])
    right, below = LEFT + n * EACH + 14, TOP + n * EACH
    figure.words(right, TOP - 22, "a program per row:", font_size=11)
    figure.words(right, TOP - 8, "O, and dQ", font_size=11, font_weight="bold")
    for i in range(n):
        y = TOP + i * EACH
        figure.words(LEFT - 6, y + 19, f"row {i}", text_anchor="end", font_size=11)
        x = LEFT + i * EACH + EACH / 2
        figure.words(x, TOP - 6, str(i), text_anchor="middle", font_size=11)
        for c, kind in sorted(rows[i]):
            box = {"x": LEFT + c * EACH, "y": y, "width": EACH - 2, "height": EACH - 2}
            figure.mark("rect", **box, **LOOKS[kind], tip=f"row {i}, column {c}: {kind}")
        _chain(figure, [(right + k * 22, y + 4) for k in range(n)], rows[i])
        _chain(figure, [(x - 9, below + 12 + k * 19) for k in range(n)], columns[i])
    floor = below + 12 + deepest * 19 + 14
    figure.words(0, floor, "a program per column:", font_size=11)
    figure.words(128, floor, "dK and dV", font_size=11, font_weight="bold")
    starts = [sum(map(len, rows[:i])) for i in range(n + 1)]
    figure.words(0, floor + 20, f"rows' starts  {' '.join(map(str, starts))}", font_size=11)
    turns = [
        start + sum(kind == FULL for _, kind in row)
        for start, row in zip(starts, rows, strict=False)
    ]
    figure.words(0, floor + 37, f"partial from  {' '.join(map(str, turns))}", font_size=11)
    return str(figure)


def _ordered(kinds_at: dict[int, str]) -> list[tuple[int, str]]:
    """Full blocks first, as a kernel goes through them."""
    return sorted(kinds_at.items(), key=lambda one: (one[1] != FULL, one[0]))


def _chain(figure: Figure, places, entries) -> None:
    """The entries of a list, each a small box with the number of a column or a row."""
    for (x, y), (number, kind) in zip(places, entries, strict=False):
        figure.mark("rect", x=x, y=y, width=19, height=17, **LOOKS[kind])
        look = {"text_anchor": "middle", "font_size": 11, "fill": INK}
        figure.words(x + 9.5, y + 13, str(number), **look)


def _describe(rows, columns) -> str:
    def said(name: str, lists) -> str:
        return "; ".join(
            f"{name} {i}: "
            + ", ".join(f"{number}{' partial' if kind == PARTIAL else ''}" for number, kind in one)
            for i, one in enumerate(lists)
        )

    return f"A grid of blocks. Beside it {said('row', rows)}. Below it {said('column', columns)}."
