"""Which way of context parallelism is fastest: a map over the sequence and the ranks."""

from itertools import pairwise

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure
from weft.plan.arguments import chosen, sizes
from weft.plan.collectives import BOXES
from weft.plan.ring import computed_seconds, pass_seconds
from weft.plan.units import length

HEADS, WIDTH = 32, 128  # of the model: Llama 3 8B's
LENGTHS = tuple(1 << i for i in range(13, 22))
RANKS = (2, 4, 8, 16, 32, 64)
BOXES_SHOWN = ("dgx-a100", "dgx-h100", "nvl72")
METHODS_SHOWN = {
    "ring": ("ring", svg.FORWARD),
    "ulysses": ("all-to-all", svg.TRAVEL),
    "gather": ("gather", svg.WEIGHT_GRADIENT),
    "grid": ("grid", svg.WAITING),
    "double": ("double ring", svg.INPUT_GRADIENT),
}
SHORT = {"ring": "ring", "ulysses": "a2a", "gather": "gather", "grid": "grid", "double": "double"}
WIDE, LEFT, TOP, HIGH = 350, 26, 62, 32


def costs(T: int, n: int, box: str, G: int, merged: float) -> dict[str, float]:
    """Each method's seconds over those of computing alone, fastest first.

    What was received forward is not kept, and comes once more in backward.

    >>> {way: f"{cost:.2f}" for way, cost in costs(131072, 16, "dgx-h100", 8, 0.9).items()}
    {'gather': '1.11', 'ring': '1.12', 'double': '1.13', 'grid': '1.14'}
    """
    chosen("box", box, BOXES_SHOWN)
    alone = computed_seconds(T, n, BOXES[box], HEADS, WIDTH)
    found = {
        way: pass_seconds(T, n, BOXES[box], HEADS, G, WIDTH, way, merged=merged, again=True)
        for way in METHODS_SHOWN
    }
    able = {way: seconds / alone for way, seconds in found.items() if seconds}
    return dict(sorted(able.items(), key=lambda one: one[1]))


def best_svg(
    T: int = 131072, n: int = 16, box: str = "dgx-h100", G: int = 8, merged: float = 0.9
) -> str:
    """The fastest way for each length and number of ranks, and its time over computing alone.

    One layer's attention of 32 heads of 128, causal, both passes, zigzag where it is not an
    all-to-all. The first cell of a run names its way. The chosen cell is framed.
    """
    T, n, G = sizes(T=T, n=n, G=G)
    for name, value, allowed in (("T", T, LENGTHS), ("n", n, RANKS)):
        if value not in allowed:
            raise ValueError(f"{name} is {value}, must be one of {', '.join(map(str, allowed))}")
    best = {(at, r): next(iter(costs(at, r, box, G, merged).items()))
            for at in LENGTHS for r in RANKS}  # fmt: skip
    figure = Figure.small(
        WIDE, TOP + HIGH * len(RANKS) + 40, f"The fastest way on {box}, {G} kv heads",
        _describe(best, box, G), largest=1.5,
    )  # fmt: skip
    keys = [(name, hue.paint() | OUTLINE) for name, hue in METHODS_SHOWN.values()]
    svg.legend(figure, keys[:3])
    svg.legend(figure, keys[3:], y=32)
    figure.words(0, TOP - 8, "GPUs", font_size=11)
    each = (WIDE - LEFT - 2) / len(LENGTHS)
    with figure.group(text_anchor="middle", font_size=11):
        for row, r in enumerate(RANKS):
            y = TOP + HIGH * row
            figure.words(LEFT - 12, y + 20, str(r))
            for column, at in enumerate(LENGTHS):
                way, cost = best[at, r]
                name, hue = METHODS_SHOWN[way]
                x = LEFT + each * column
                box_ = {"x": x, "y": y, "width": each - 1, "height": HIGH - 1}
                tip = f"{length(at)} tokens on {r} GPUs: {name}, {cost:.2f} times computing alone"
                figure.mark("rect", **box_, **hue.paint(0.2), tip=tip)
                shown = f"{cost:.2f}" if cost < 9.995 else f"{cost:.0f}"
                over = {"fill": INK, "pointer_events": "none"}
                if not column or best[LENGTHS[column - 1], r][0] != way:
                    figure.words(x + each / 2, y + 13, SHORT[way], **over, font_size=9)
                figure.words(x + each / 2, y + 26, shown, **over)
        floor = TOP + HIGH * len(RANKS)
        for column, at in enumerate(LENGTHS):
            figure.words(LEFT + each * (column + 0.5), floor + 14, length(at))
        figure.words(LEFT + each * len(LENGTHS) / 2, floor + 32, "tokens of the sequence")
    frame = {"fill": "none", "stroke": "currentColor", "stroke_width": 2.5}
    at = {"x": LEFT + each * LENGTHS.index(T) - 1, "y": TOP + HIGH * RANKS.index(n) - 1}
    figure.mark("rect", **at, width=each + 1, height=HIGH + 1, **frame)
    return str(figure)


def _describe(best, box, G) -> str:
    told = []
    for r in RANKS:
        row = [(METHODS_SHOWN[best[at, r][0]][0], length(at)) for at in LENGTHS]
        runs = [row[0]]
        runs += [two for one, two in pairwise(row) if one[0] != two[0]]
        said = ", ".join(f"{name} from {at}" for name, at in runs)
        told.append(f"{r} GPUs: {said}")
    return f"A grid of cells on {box} with {G} kv heads. {'; '.join(told)}."
