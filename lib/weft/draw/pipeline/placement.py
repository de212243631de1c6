"""Which layers lie on which rank: one stage each, round and round, folded, or two copies."""

from collections.abc import Sequence
from itertools import pairwise

from weft.draw import figure as svg
from weft.draw.figure import FORWARD, INK, OUTLINE, Figure
from weft.plan.arguments import whole
from weft.plan.pipeline import folded, looped

LEFT, WIDE = 44, 350
TOP, HEAD, ROW, BETWEEN = 22, 20, 14, 10  # the legend; of a panel its words, a rank, what follows
WHITE = 0.6  # of what is lighter
KEYS = [("first stage", FORWARD.paint()), ("second, or second copy", FORWARD.paint(white=WHITE))]


def placement_svg(p: int = 4) -> str:
    """Four ways of placing 2 p layers on p ranks, below each other, with the way of the data.

    A column is a layer, a row a rank. In the last panel the lighter boxes are a second copy of the
    model, through which half of the data goes the other way.
    """
    p = whole("p", p, least=2, most=8)
    straight = [layer // 2 for layer in range(2 * p)]
    dark, light = FORWARD.paint(), FORWARD.paint(white=WHITE)
    halves = [dark] * p + [light] * p
    panels = {
        "straight: GPipe, 1F1B, ZB-H1, ZB-H2": [(straight, [dark] * 2 * p)],
        "looped: interleaved 1F1B": [(looped(p, 2), halves)],
        "folded, a V: ZB-V, DualPipeV": [(folded(p), halves)],
        "two copies: DualPipe": [(straight, [dark] * 2 * p), (straight[::-1], [light] * 2 * p)],
    }
    each = HEAD + p * ROW + BETWEEN
    told = " ".join(
        f"{name[0].upper()}{name[1:]}: {'; '.join(_told(ranks) for ranks, _ in copies)}."
        for name, copies in panels.items()
    )
    title = f"Where {2 * p} layers lie on {p} ranks"
    figure = Figure.small(WIDE, TOP + len(panels) * each, title, told, largest=1.4)
    svg.legend(figure, KEYS)
    for i, (name, copies) in enumerate(panels.items()):
        top = TOP + i * each + HEAD
        figure.words(0, top - 6, name, font_weight="bold")
        figure.words(WIDE, top - 6, f"{changes(copies[0][0])} hops", text_anchor="end")
        _panel(figure, top, p, copies)
    return str(figure)


def changes(ranks: Sequence[int]) -> int:
    """How often the rank changes on the way through the layers: the hops of a forward.

    >>> changes(folded(4)), changes(looped(4, 2))
    (6, 7)
    """
    return sum(a != b for a, b in pairwise(ranks))


def _panel(
    figure: Figure, top: float, p: int, copies: Sequence[tuple[Sequence[int], Sequence[dict]]]
) -> None:
    """The boxes of one placement, and a line through them for each copy of the model."""
    wide = (WIDE - LEFT - 2) / (2 * p)
    for rank in range(p):
        figure.words(0, top + rank * ROW + 11, f"rank {rank}")
    figure.boxes(
        [(LEFT, top + r * ROW + 1, 2 * p * wide, ROW - 2) for r in range(p)], fill_opacity=0.06
    )
    for ranks, looks in copies:
        for layer, (rank, look) in enumerate(zip(ranks, looks, strict=True)):
            box = LEFT + layer * wide, top + rank * ROW + 1, wide, ROW - 2
            figure.boxes([box], **look, **OUTLINE)
    for ranks, _ in copies:
        middles = (
            f"{svg.number(LEFT + (layer + 0.5) * wide)} {svg.number(top + (rank + 0.5) * ROW)}"
            for layer, rank in enumerate(ranks)
        )
        way = {"d": "M" + "L".join(middles), "fill": "none", "stroke_linejoin": "round"}
        figure.mark("path", stroke="#fff", stroke_width=4, stroke_opacity=0.8, **way)
        figure.mark("path", stroke=INK, stroke_width=1.5, **way)


def _told(ranks: Sequence[int]) -> str:
    return "layers 0 to {} on ranks {}".format(len(ranks) - 1, ", ".join(map(str, ranks)))
