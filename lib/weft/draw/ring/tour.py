"""The backward's ring: gradients of keys and values go round with them and come home last."""

from weft.draw.figure import INK, OUTLINE, Figure
from weft.draw.zero import HUES
from weft.plan.arguments import whole

WIDE, LEFT, HIGH, GAP, TOP = 350, 46, 40, 14, 34
APART = 18  # between two columns, where the arrows run


def tour_svg(n: int = 3) -> str:
    """For each step, which block a rank works on, and whose parts its gradient has in it by then.

    A box has the colour of the block's owner; a small square is a rank that has added its part.
    After the last step the gradient goes one hop further, and is home.
    """
    n = whole("n", n, least=2, most=4)
    step = (WIDE - LEFT) / (n + 1)
    figure = Figure.small(
        WIDE, TOP + n * (HIGH + GAP) + 4, f"Keys, values and their gradients on {n} ranks",
        _describe(n), largest=1.4,
    )  # fmt: skip
    with figure.group(text_anchor="middle", font_weight="bold"):
        for s in range(n + 1):
            name = f"step {s}" if s < n else "home"
            figure.words(LEFT + (s + 0.5) * step - APART / 2, 18, name)
    for r in range(n):
        y = TOP + r * (HIGH + GAP)
        figure.words(0, y + HIGH / 2 + 4, f"rank {r}", font_size=11)
        for s in range(n + 1):
            _stop(figure, n, r, s, LEFT + s * step, y, step - APART)
            if s < n:
                below = TOP + (r + 1) % n * (HIGH + GAP)
                _hop(figure, LEFT + (s + 1) * step - APART, y, below, r == n - 1)
    return str(figure)


def _stop(figure, n, rank, step, x, y, wide) -> None:
    """What one rank has at one step: a block, and the stamps of its gradient."""
    block = (rank - step) % n
    visited = [(block + i) % n for i in range(min(step + 1, n))]
    home = step == n
    look = HUES[block].paint() | OUTLINE | ({"stroke_width": 2} if home else {})
    told = ", ".join(map(str, visited))
    what = "home with" if home else "has"
    tip = f"block {block} on rank {rank}; its gradient {what} the parts of ranks {told}"
    figure.mark("rect", x=x, y=y, width=wide, height=HIGH, rx=4, **look, tip=tip)
    label = f"dKV{'₀₁₂₃'[block]}" if home else f"KV{'₀₁₂₃'[block]}"
    figure.words(x + wide / 2, y + 16, label, text_anchor="middle", fill=INK, font_weight="bold")
    apart = min(14, (wide - 2) / n)
    first = x + wide / 2 - apart / 2 * len(visited)
    for i, stamp in enumerate(visited):
        box = {"x": first + apart * i + 1, "y": y + 24, "width": apart - 2, "height": 10}
        figure.mark("rect", **box, **HUES[stamp].paint(), stroke=INK, stroke_width=1)


def _hop(figure, x, y, into, back) -> None:
    """An arrow to the next rank's next step; dashed from the last rank up to the first."""
    look = {"fill": "none", "stroke": "currentColor", "stroke_width": 1.25}
    dashes = {"stroke_dasharray": "3 2"} if back else {}
    turn, end, high = x + (9 if back else 4), x + APART, into + 0.3 * HIGH
    figure.mark("path", d=f"M{x} {y + 0.7 * HIGH}H{turn}V{high}H{end - 1}", **look, **dashes)
    figure.mark("path", d=f"M{end - 5} {high - 3}L{end - 1} {high}L{end - 5} {high + 3}", **look)


def _describe(n: int) -> str:
    return (
        f"{n} rows of ranks and {n + 1} columns. In step 0 every rank has its own block with one "
        f"stamp, its own. In each further step it has the block of the rank before and one stamp "
        f"more, until in step {n - 1} a block's gradient has {n} stamps, on the rank before its "
        f"owner. In the last column all gradients are home."
    )
