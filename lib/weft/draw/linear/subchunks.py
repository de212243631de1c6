"""A chunk whose decay is a vector: which of its blocks are matmuls, and from where they count."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure
from weft.draw.linear.forms import INSIDE
from weft.plan.arguments import sizes

SIDE, LEFT, TOP = 176, 132, 48
MATMUL, SINGLE = INSIDE.paint(0.2), svg.INPUT_GRADIENT.paint()


def subchunks_svg(C: int = 64, c: int = 16) -> str:
    """The scores of one chunk in sub-chunks: blocks left of the diagonal, and those on it.

    Every row of blocks counts decays from its first query, marked at the left.
    """
    C, c = sizes(C=C, c=c)
    if C % c or C // c > 8:
        raise ValueError(f"c is {c}, must divide C = {C}, at most 8 times")
    n, each = C // c, SIDE * c / C
    figure = Figure.small(
        LEFT + SIDE + 12, TOP + SIDE + 30, f"A chunk of {C} in sub-chunks of {c}",
        f"A triangle of {n * (n + 1) // 2} blocks of {c} by {c} scores. The {n * (n - 1) // 2} "
        f"left of the diagonal are matmuls, and each row of blocks counts its decays from its "
        f"first query. The {n} on the diagonal are computed score by score.", largest=1.4,
    )  # fmt: skip
    svg.legend(figure, [("matmul, split", MATMUL | OUTLINE), ("score by score", SINGLE | OUTLINE)])
    figure.words(LEFT, TOP - 8, "keys", font_size=11)
    figure.mark("rect", x=LEFT, y=TOP, width=SIDE, height=SIDE, fill_opacity=0.06)
    for i in range(n):
        y = TOP + i * each
        for j in range(i + 1):
            look = SINGLE if i == j else MATMUL
            tip = f"queries {i * c} to {i * c + c - 1}, keys {j * c} to {j * c + c - 1}"
            box = {"x": LEFT + j * each, "y": y, "width": each, "height": each}
            figure.mark("rect", **box, **look, **OUTLINE, tip=tip)
        if i:
            figure.line(LEFT - 12, y, LEFT + i * each, y, stroke_width=2)
            figure.words(LEFT - 16, y + 4, f"count from {i * c}", font_size=11, text_anchor="end")
    figure.words(
        LEFT, TOP + SIDE + 20, f"{n * (n - 1) // 2} blocks, and {n} on the diagonal", font_size=11
    )
    return str(figure)
