"""The three forms in one language: a tape of states, a table of scores, a staircase of chunks.

A score that is computed is a blue cell; what has become part of a state is yellow. Where the
state fades, a cell is as strong as what is left of key j's write at query i.
"""

from collections.abc import Sequence
from math import prod

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure, number
from weft.plan.arguments import amount, few, row, sizes
from weft.plan.attention import cuts

WIDE, GAP, SIDE = 340, 24, 158  # the picture; between two tables; one table
MOST = 32  # tokens that can be told apart
INSIDE, HISTORY = svg.FORWARD, svg.TRAVEL
Decay = float | Sequence[float]


def forms_svg(T: int = 11, C: int = 4, decay: Decay = 1.0, names: Sequence[str] = ()) -> str:
    """The recurrent tape above; the parallel table and the chunked staircase below it.

    `decay` is what is left of the state after a token, from 0 to 1: one number, or one for each
    token. `names` replace the headings "recurrent", "parallel" and "chunked".
    """
    T, C = _few(T, C)
    decays = _decays(decay, T)
    top = 128  # of the two tables, headings included
    figure = Figure.small(
        WIDE, top + SIDE + 32, f"Three forms of one recurrence, {T} tokens, chunks of {C}",
        _describe(T, C, decays), largest=1.5,
    )  # fmt: skip
    meanings = {"score, computed": INSIDE, "in the state": HISTORY}
    svg.legend(figure, [(name, hue.paint() | OUTLINE) for name, hue in meanings.items()])
    recurrent, parallel, chunked = names or ("recurrent", "parallel", "chunked")
    figure.words(0, 40, recurrent, font_weight="bold")
    tape(figure, 0, 50, T, decays)
    for left, name in ((0, parallel), (SIDE + GAP, chunked)):
        figure.words(left, top, name, font_weight="bold")
    table(figure, 0, top + 8, T, decays)
    staircase(figure, SIDE + GAP, top + 8, T, C, decays)
    with figure.group(font_size=11):
        figure.words(0, top + SIDE + 24, f"{T * (T + 1) // 2} scores")
        inside = sum((cut.stop - cut.start) ** 2 for cut in cuts(T, C))
        inside = (inside + T) // 2
        states = len(cuts(T, C)) - 1
        figure.words(SIDE + GAP, top + SIDE + 24, f"{inside} scores, {states} states")
    return str(figure)


def fade(decays: Sequence[float], i: int, j: int) -> float:
    """What is left at token i of what token j wrote: the decays of the tokens after j, up to i.

    >>> fade([0.5, 0.5, 0.5], 2, 0)
    0.25
    """
    return prod(decays[j + 1 : i + 1])


def tape(figure: Figure, left: float, top: float, T: int, decays: Sequence[float]) -> None:
    """One state after another; a token goes in below each, and an output comes out above."""
    each = WIDE / T
    side = min(0.62 * each, 22)
    middle = top + 22
    for t in range(T):
        x = left + (t + 0.5) * each - side / 2
        box = {"x": x, "y": middle - side / 2, "width": side, "height": side}
        figure.mark("rect", **box, **HISTORY.paint(), **OUTLINE, tip=f"the state after token {t}")
        centre = x + side / 2
        arrow(figure, centre, middle + side / 2 + 13, centre, middle + side / 2 + 2)
        arrow(figure, centre, middle - side / 2, centre, middle - side / 2 - 10)
        if t + 1 < T:
            kept = fade(decays, t + 1, t)
            with figure.group(stroke_opacity=0.25 + 0.75 * kept):
                arrow(figure, x + side, middle, x + each, middle)
    if T <= 16:
        with figure.group(font_size=9, text_anchor="middle"):
            for t in range(T):
                figure.words(left + (t + 0.5) * each, middle + side / 2 + 22, str(t))


def table(figure: Figure, left: float, top: float, T: int, decays: Sequence[float]) -> None:
    """All scores of T queries, down, with the keys up to their own, across."""
    each = SIDE / T
    _hidden(figure, left, top)
    for i in range(T):
        for j in range(i + 1):
            _cell(figure, left + j * each, top + i * each, each, INSIDE, fade(decays, i, j), i, j)


def staircase(
    figure: Figure, left: float, top: float, T: int, C: int, decays: Sequence[float]
) -> None:
    """Triangles of scores on the diagonal; left of each, the history, which is one state."""
    each = SIDE / T
    _hidden(figure, left, top)
    for cut in cuts(T, C):
        for i in range(cut.start, cut.stop):
            for j in range(cut.start):
                strength = 0.15 + 0.85 * fade(decays, i, j)
                box = (left + j * each, top + i * each, each, each)
                figure.boxes([box], **HISTORY.paint(), fill_opacity=strength)
            for j in range(cut.start, i + 1):
                _cell(
                    figure, left + j * each, top + i * each, each, INSIDE, fade(decays, i, j), i, j
                )
        if cut.start:
            high = (cut.stop - cut.start) * each
            box = {"x": left, "y": top + cut.start * each, "width": cut.start * each}
            figure.mark(
                "rect", **box, height=high, fill="none", stroke="currentColor", stroke_width=1.5,
                tip=f"queries {cut.start} to {cut.stop - 1} read one state, of tokens 0 to "
                f"{cut.start - 1}",
            )  # fmt: skip
            if high >= 18:
                x, y = left + cut.start * each / 2, top + cut.start * each + high / 2
                badge = {"x": x - 9, "y": y - 9, "width": 18, "height": 18, "rx": 3}
                figure.mark("rect", **badge, **HISTORY.paint(), **OUTLINE)
                figure.words(x, y + 5, "S", text_anchor="middle", font_weight="bold", fill=svg.INK)


def arrow(figure: Figure, x1: float, y1: float, x2: float, y2: float, head: float = 3.5) -> None:
    """A straight arrow along one of the axes."""
    figure.line(x1, y1, x2, y2, stroke_width=1.25)
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    ends = [(x2 - head * (dx + s * dy), y2 - head * (dy + s * dx)) for s in (1, -1)]
    path = "L".join(f"{number(x)} {number(y)}" for x, y in (ends[0], (x2, y2), ends[1]))
    figure.mark("path", d=f"M{path}", fill="none", stroke="currentColor", stroke_width=1.25)


def _hidden(figure: Figure, left: float, top: float) -> None:
    figure.mark("rect", x=left, y=top, width=SIDE, height=SIDE, fill_opacity=0.06)


def _cell(figure, x, y, each, colour, left_over, i, j) -> None:
    tip = f"query {i}, key {j}" + (f": {left_over:.2f} left" if left_over < 1 else "")
    look = colour.paint() | {"fill_opacity": 0.12 + 0.88 * left_over}
    figure.mark("rect", x=x, y=y, width=each, height=each, tip=tip, **look, **OUTLINE)


def _few(T: int, C: int) -> tuple[int, int]:
    T, C = sizes(T=T, C=C)
    if T > MOST:
        raise ValueError(f"T is {T}, must be at most {MOST} to be told apart")
    few(T, "tokens", T=T)
    return T, C


def _decays(decay: Decay, T: int) -> list[float]:
    decays = [decay] * T if isinstance(decay, int | float) else row("decay", decay)
    if len(decays) != T:
        raise ValueError(f"decay has {len(decays)} numbers, must have one for each of {T} tokens")
    for one in decays:
        if amount("decay", one) > 1:
            raise ValueError(f"decay is {one}, must be at most 1")
    return decays


def _describe(T: int, C: int, decays: Sequence[float]) -> str:
    fading = "" if min(decays) == 1 else " Cells are fainter the more of a write has faded."
    return (
        f"Above, {T} equal squares in a row, the state after each token, with an arrow in from "
        f"below, one out above and one to the next. Below left, a triangle of {T * (T + 1) // 2} "
        f"cells, every query with the keys up to its own. Right, the same triangle in chunks of "
        f"{C}: {len(cuts(T, C))} small triangles of cells on the diagonal, and left of each but "
        f"the first one rectangle, which is one state S.{fading}"
    )
