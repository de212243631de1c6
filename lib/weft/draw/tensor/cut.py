"""The first matrix by columns, the second by rows: who has what, and where a sum is left over."""

from itertools import accumulate

from weft.draw import figure as svg
from weft.draw.figure import INK, Figure
from weft.draw.tensor.states import KEYS, MATRIX, PARTIAL, RANKS, WHOLE, arrow, box, said
from weft.plan.arguments import whole
from weft.plan.tensor import shares

WIDE, TOP, HIGH, GAP = 350, 74, 54, 20
T, D, F = 28, 22, 50  # units that a dim takes in the picture
AT = (0, 46, 122, 198, 262, 328)  # x, up, hidden, down, a part, the sum


def cut_svg(t: int = 3, hidden: int = 8) -> str:
    """t ranks below each other: whole tokens, own columns, own neurons, own rows, a part of a sum.

    `hidden` neurons are dealt as torch.tensor_split does. Nothing crosses between the rows of the
    picture before the sum on the right.
    """
    t = whole("t", t, least=2, most=4)
    hidden = whole("hidden", hidden, least=t, most=12)
    counts = shares(hidden, t)
    figure = Figure.small(
        WIDE, TOP + t * (HIGH + GAP) + 24, f"Two matrices on {t} ranks", _describe(t, counts),
        largest=1.5,
    )  # fmt: skip
    svg.legend(figure, KEYS)
    svg.legend(figure, [(f"rank {r}'s", hue.paint()) for r, hue in enumerate(RANKS[:t])], y=32)
    names = "x", "first: columns", "neurons", "second: rows", "part"
    middles = (T / 2, F / 2, F / 2, D / 2 + 4, D / 2)
    for name, x, half in zip(names, AT, middles, strict=False):
        said(figure, AT[0] + x + half, TOP - 12, name)
    first = [0, *accumulate(counts)]
    for r in range(t):
        y = TOP + r * (HIGH + GAP)
        start, many = F * first[r] / hidden, F * counts[r] / hidden
        hue = RANKS[r].paint()
        middle = y + HIGH / 2
        box(figure, AT[0], middle - T / 2, D, T, WHOLE, f"rank {r}: x, whole")
        arrow(figure, AT[0] + D + 4, middle, AT[1] - 4)
        box(figure, AT[1], middle - D / 2, F, D, MATRIX, "the first matrix")
        mine = f"rank {r}: {counts[r]} of {hidden} columns"
        box(figure, AT[1] + start, middle - D / 2, many, D, hue, mine)
        arrow(figure, AT[1] + F + 4, middle, AT[2] - 4)
        box(figure, AT[2], middle - T / 2, F, T, MATRIX, "all neurons")
        mine = f"rank {r}: {counts[r]} of {hidden} neurons, for all tokens"
        box(figure, AT[2] + start, middle - T / 2, many, T, hue, mine)
        arrow(figure, AT[2] + F + 4, middle, AT[3] - 4)
        box(figure, AT[3], middle - F / 2, D, F, MATRIX, "the second matrix")
        mine = f"rank {r}: {counts[r]} of {hidden} rows"
        box(figure, AT[3], middle - F / 2 + start, D, many, hue, mine)
        arrow(figure, AT[3] + D + 4, middle, AT[4] - 4)
        for i in range(1, hidden):
            at = i * F / hidden
            own = {"stroke": INK} if first[r] < i < first[r + 1] else {}
            _between(figure, AT[1] + at, middle - D / 2, AT[1] + at, middle + D / 2, own)
            _between(figure, AT[2] + at, middle - T / 2, AT[2] + at, middle + T / 2, own)
            _between(figure, AT[3], middle - F / 2 + at, AT[3] + D, middle - F / 2 + at, own)
        tip = f"rank {r}: a summand of every output"
        box(figure, AT[4], middle - T / 2, D, T, PARTIAL.paint(), tip)
    centre = TOP + (t * (HIGH + GAP) - GAP) / 2
    for r in range(t):
        middle = TOP + r * (HIGH + GAP) + HIGH / 2
        figure.line(AT[4] + D + 2, middle, AT[5] - 12, centre, stroke_width=1)
    said(figure, AT[5] - 8, centre - T / 2 - 8, "+", font_size=16)
    box(figure, AT[5] - 2, centre - T / 2, D, T, WHOLE, "the sum, whole on every rank")
    bottom = TOP + t * (HIGH + GAP) + 12
    said(figure, (AT[1] + AT[4]) / 2, bottom, "nothing is sent before the sum")
    said(figure, AT[5] - 18, bottom, "all-reduce")
    return str(figure)


def _between(
    figure: Figure, x: float, y: float, to: float, below: float, look: dict[str, str]
) -> None:
    """A thin line between two neurons; in ink on a rank's own."""
    figure.line(x, y, to, below, **({"stroke_width": 0.5, "stroke_opacity": 0.5} | look))


def _describe(t: int, counts: list[int]) -> str:
    told = ", ".join(map(str, counts))
    return (
        f"{t} rows, one for each rank. All have the same x. A rank has its own columns of the "
        f"first matrix, {told} of {sum(counts)}, so the same neurons for all tokens, and the rows "
        f"of the second matrix that these neurons meet. What comes out is a summand of every "
        f"output, in another colour. Lines lead from all summands to their sum."
    )
