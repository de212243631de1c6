"""Pairs on graph paper: a window's ribbon, and the squares that a kernel pays for."""

from weft.draw import figure as svg
from weft.draw.figure import INK, Figure
from weft.draw.sparse.squares import FULL, LOOKS, PARTIAL, kinds, seen
from weft.plan.arguments import chosen, sizes
from weft.plan.sparse import pairs, waste
from weft.plan.units import amount

WIDE, LEFT, TOP, SIDE = 340, 2, 42, 336
MOST = 64  # tokens that can be told apart
SIDES = ("causal", "both")


def tiles_svg(
    T: int = 24, window: int = 5, dilation: int = 1, globals: int = 0, block: int = 4,
    sides: str = "causal",
) -> str:  # fmt: skip
    """Queries down, keys across: dark what is seen, coloured each block that holds some of it."""
    T, block = sizes(T=T, block=block)
    if T > MOST:
        raise ValueError(f"T is {T}, must be at most {MOST} to be seen")
    causal = chosen("sides", sides, SIDES) == "causal"
    rest = window, dilation, globals, causal
    squares = kinds(T, block, *rest)
    figure = Figure.small(
        WIDE, TOP + SIDE + 6, f"{T} tokens, blocks of {block}",
        _describe(T, block, rest, squares), largest=1.3,
    )  # fmt: skip
    pair = {"fill": INK, "fill_opacity": 0.75}
    figure_keys = [(f"{kind} block", look) for kind, look in LOOKS.items()]
    svg.legend(figure, [*figure_keys, ("pair seen", {**pair, "stroke": "currentColor"})])
    figure.words(LEFT, TOP - 7, "keys →, queries ↓", font_size=11)
    unit = SIDE / T
    figure.mark("rect", x=LEFT, y=TOP, width=SIDE, height=SIDE, fill="none",
                stroke="currentColor", stroke_opacity=0.4)  # fmt: skip
    for (r, c), kind in squares.items():
        x, y = c * block, r * block
        wide, high = min(block, T - x) * unit, min(block, T - y) * unit
        box = {"x": LEFT + x * unit, "y": TOP + y * unit, "width": wide, "height": high}
        figure.mark("rect", **box, **LOOKS[kind], tip=f"row {r}, column {c}: {kind}")
    gap = 0.12 * unit
    figure.boxes([
        (LEFT + j * unit + gap, TOP + i * unit + gap, unit - 2 * gap, unit - 2 * gap)
        for i, keys in enumerate(seen(T, *rest)) for j in keys
    ], pointer_events="none", **pair)  # fmt: skip
    return str(figure)


def _describe(T, block, rest, squares) -> str:
    count = {kind: list(squares.values()).count(kind) for kind in (FULL, PARTIAL)}
    return (
        f"A square of {T} queries by {T} keys on a grid of blocks of {block}. "
        f"{pairs(T, *rest)} pairs are dark. They lie in {len(squares)} blocks, {count[FULL]} full "
        f"and {count[PARTIAL]} partial; the others are empty. {amount(waste(T, block, *rest), 3)} "
        f"scores are computed for each pair."
    )
