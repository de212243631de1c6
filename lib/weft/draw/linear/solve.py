"""Why a chunk of the delta rule solves a triangular system: writes that correct each other."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure
from weft.draw.linear.forms import HISTORY, INSIDE
from weft.plan.linear import written

KEYS = ((1.0, 0.0), (0.6, 0.8), (0.0, 1.0), (1.0, 0.0))
VALUES = (1.0, 2.0, 3.0, 4.0)
CELL, TOP = 34, 48


def solve_svg() -> str:
    """Four keys and values: the triangle of their overlaps, what is written, the values.

    Below it row after row: a value less what the writes before it answer already.
    """
    n, new = len(KEYS), written(KEYS, VALUES)
    overlap = [[sum(a * b for a, b in zip(KEYS[i], KEYS[j], strict=True)) for j in range(i)]
               for i in range(n)]  # fmt: skip
    told = [_line(i, overlap[i], new) for i in range(n)]
    figure = Figure.small(
        330, TOP + n * CELL + 22 + 18 * n + 6,
        "Four writes of one chunk as a triangular system, solved row by row",
        "A triangle of numbers with ones on its diagonal, times the writes u, is the values v. "
        f"Row after row: {'; '.join(told)}.", largest=1.4,
    )  # fmt: skip
    svg.legend(
        figure,
        [("keys overlap", INSIDE.paint(0.3) | OUTLINE), ("written", HISTORY.paint() | OUTLINE)],
    )
    columns = (("1 + A", 0, n), ("u", n * CELL + 30, 1), ("v", (n + 1) * CELL + 72, 1))
    for name, left, wide in columns:
        figure.words(
            left + wide * CELL / 2, TOP - 8, name, text_anchor="middle", font_weight="bold"
        )
    for i in range(n):
        y = TOP + i * CELL
        for j in range(n):
            look = {"fill_opacity": 0.06}
            if j < i and overlap[i][j]:
                look = INSIDE.paint(0.3) | OUTLINE
            value = 1.0 if i == j else overlap[i][j] if j < i else 0.0
            _cell(figure, j * CELL, y, look, f"{value:g}", dark=j < i and bool(value))
        _cell(figure, columns[1][1], y, HISTORY.paint() | OUTLINE, f"{new[i]:.3g}", dark=True)
        _cell(figure, columns[2][1], y, {"fill_opacity": 0.06}, f"{VALUES[i]:g}")
    middle = TOP + n * CELL / 2 + 4
    figure.words(n * CELL + 15, middle, "×", text_anchor="middle")
    figure.words(columns[2][1] - 20, middle, "=", text_anchor="middle")
    for i, line in enumerate(told):
        figure.words(0, TOP + n * CELL + 22 + 18 * i, line, font_size=11)
    return str(figure)


def _cell(figure, x, y, look, word, dark=False) -> None:
    figure.mark("rect", x=x, y=y, width=CELL, height=CELL, **look)
    ink = {"fill": svg.INK} if dark else {}
    figure.words(x + CELL / 2, y + CELL / 2 + 4, word, text_anchor="middle", font_size=11, **ink)


def _line(i: int, overlap: list[float], new: tuple[float, ...]) -> str:
    """u2 = 2 − 0.6 · 1 = 1.4, with indices from 0."""
    name = "₀₁₂₃₄₅₆₇₈₉"[i]
    minus = "".join(f" − {a:g} · {u:.3g}" for a, u in zip(overlap, new, strict=False) if a)
    return f"u{name} = {VALUES[i]:g}{minus}" + (f" = {new[i]:.3g}" if minus else "")
