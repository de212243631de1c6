"""One world in two shapes: the same ranks for attention and for experts, by who has the same."""

from weft.draw.figure import INK, OUTLINE, Figure, dashed
from weft.draw.zero import HUES
from weft.plan.arguments import sizes

SIDE, GAP, WIDE = 38, 34, 350


def chairs_svg(n: int = 16, t: int = 2, e: int = 4) -> str:
    """n ranks in rows of four, twice; a colour is who holds the same weights.

    On the left t neighbours share a copy of attention, on the right e neighbours the experts;
    both are framed, and on the right tokens travel inside a frame.
    """
    n, t, e = sizes(n=n, t=t, e=e)
    if n % 4 or 4 % t or e != 4:
        raise ValueError(f"n is {n}, t {t} and e {e}: e must be 4, t divide it, and it divide n")
    rows = n // 4
    figure = Figure.small(
        WIDE, 80 + rows * SIDE, f"{n} ranks for attention and for experts", _describe(n, t, e),
        largest=1.4,
    )  # fmt: skip
    left = WIDE - 4 * SIDE
    for x, name, parts, count in (
        (0, "attention", t, f"t = {t}, d = {n // t}"),
        (left, "experts", e, f"e = {e}, copies: {n // e}"),
    ):
        figure.words(x + 2, 14, name, font_weight="bold")
        figure.words(x + 2, 32, count, font_size=11)
        for rank in range(n):
            row, column = divmod(rank, 4)
            _chair(figure, x + column * SIDE, 42 + row * SIDE, rank, rank % parts, name)
        for first in range(0, n, parts):
            row, column = divmod(first, 4)
            box = {"x": x + column * SIDE + 0.5, "y": 42.5 + row * SIDE}
            box |= {"width": parts * SIDE - 1.5, "height": SIDE - 2}
            figure.mark("rect", **box, **dashed("none", 0.9))
    below = 58 + rows * SIDE
    figure.words(0, below, "in a frame: tensor group", font_size=11)
    figure.words(left, below, "in a frame: all-to-all", font_size=11)
    figure.words(0, below + 16, "same colour within a square: same weights", font_size=11)
    return str(figure)


def _chair(figure: Figure, x: float, y: float, rank: int, part: int, name: str) -> None:
    box = {"x": x + 4, "y": y + 4, "width": SIDE - 8, "height": SIDE - 10, "rx": 4}
    tip = f"rank {rank} holds part {part} of the {name}"
    figure.mark("rect", **box, **HUES[part].paint(), **OUTLINE, tip=tip)
    look = {"text_anchor": "middle", "fill": INK, "pointer_events": "none"}
    figure.words(x + SIDE / 2, y + SIDE / 2 + 3, str(rank), **look)


def _describe(n: int, t: int, e: int) -> str:
    return (
        f"The same {n} ranks twice, in rows of four. On the left {t} colours alternate: ranks of "
        f"a colour hold the same part of attention, {n // t} copies of each, and {t} neighbours in "
        f"a frame hold all of it. On the right each "
        f"row has {e} colours and a frame: its ranks hold all experts together, and exchange "
        f"tokens. A column has one colour, the {n // e} copies of the same experts."
    )
