"""Forward and backward of half a layer as states of a tensor, with and without tokens cut."""

from weft.draw import figure as svg
from weft.draw.figure import FORWARD, INPUT_GRADIENT, Figure
from weft.draw.tensor.states import KEYS, PARTIAL, RANKS, WHOLE, arrow, box, said

WIDE, ROW, HIGH = 350, 66, 30
STATE, STEP = 28, 58  # how wide a tensor is, and an exchange
OWN = {"whole": WHOLE, "tokens": RANKS[0].paint(), "part": PARTIAL.paint()}
FLOWS = (  # pass, outside, the exchange at the norm's side, and the one at the residual's
    ("forward", "whole", "copy", "all-reduce"),
    ("backward", "whole", "all-reduce", "copy"),
    ("forward", "tokens", "all-gather", "reduce-scatter"),
    ("backward", "tokens", "reduce-scatter", "all-gather"),
)
SHORT = {"copy": ("copy",), "all-reduce": ("all-", "reduce"), "all-gather": ("all-", "gather")}
SHORT |= {"reduce-scatter": ("reduce-", "scatter")}


def conjugate_svg() -> str:
    """Four rows: both passes of tensor parallelism, and of sequence parallelism with it.

    Forward runs to the right and backward to the left. In each row the two matrices make a part of
    a sum out of something whole; an exchange on either side makes it what the others want.
    """
    figure = Figure.small(
        WIDE, 44 + 2 * (2 * ROW + 22) + 4, "What goes in and out of two matrices", _describe(),
        largest=1.5,
    )  # fmt: skip
    svg.legend(figure, KEYS)
    svg.legend(figure, [("a rank's own tokens", OWN["tokens"])], y=32)
    y = 58
    for i, flow in enumerate(FLOWS):
        if i % 2 == 0:
            name = ("tensor parallel", "and sequence parallel")[i // 2]
            figure.words(0, y, name, font_weight="bold")
            y += 8
        _flow(figure, y, *flow)
        y += ROW + (14 if i % 2 else 0)
    return str(figure)


def _flow(figure: Figure, y: float, way: str, outside: str, near: str, far: str) -> None:
    ahead = way == "forward"
    states = (outside, "whole", "part", outside) if ahead else (outside, "part", "whole", outside)
    matrices = WIDE - 4 * STATE - 2 * STEP
    at = (0, STATE + STEP, STATE + STEP + STATE + matrices, WIDE - STATE)
    middle = y + 20 + HIGH / 2
    hue = FORWARD if ahead else INPUT_GRADIENT
    for state, x in zip(states, at, strict=True):
        high = HIGH / 3 if state == "tokens" else HIGH
        box(figure, x + 4, middle - high / 2, STATE - 8, high, OWN[state], state)
    between = [(at[i] + STATE, at[i + 1]) for i in range(3)]
    for i, (start, stop) in enumerate(between):
        x, to = (start, stop) if ahead else (stop, start)
        if i != 1:
            exchange = near if i == 0 else far
            arrow(figure, x, middle, to)
            words = SHORT[exchange]
            for line, word in enumerate(words):
                above = middle - 18 + 11 * line - 11 * (len(words) - 2)
                said(figure, (x + to) / 2, above if len(words) > 1 else middle - 7, word)
        else:
            arrow(figure, x, middle, to)
            wide = stop - start - 24
            box(figure, start + 12, middle - 11, wide, 22, hue.paint(), "two matrices, cut")
            names = "up, gelu, down" if ahead else "downᵀ, gelu′, upᵀ"
            said(figure, (start + stop) / 2, middle + 4, names, ink=True, font_size=10.5)
            said(figure, (start + stop) / 2, middle - 17, way)


def _describe() -> str:
    told = "; ".join(
        f"{way}, {'own tokens' if outside == 'tokens' else 'whole'} outside, {near} at the norm "
        f"and {far} at the residual"
        for way, outside, near, far in FLOWS
    )
    return (
        f"Four rows: {told}. In forward, which runs to the right, the matrices make a part of a "
        f"sum from what is whole; in backward, which runs to the left, they do the same."
    )
