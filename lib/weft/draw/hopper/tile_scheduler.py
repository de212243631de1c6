"""How long each block of a persistent kernel works, dealt in turn and to whoever is free first."""

from collections.abc import Sequence

from weft.draw.figure import INK, Colour, Figure
from weft.plan.hopper import by_queries, in_groups, in_turn, loads, order, stretch

WIDE, PANEL, GAP = 480, 96, 44
BAR = Colour("weft-work", "#88BBEE")


def loads_svg(T: int, heads: int, together: int, rows: int, keys: int, blocks: int) -> str:
    """A bar for each block, as high as its pieces take together; a line where all were equal.

    Pieces are those of causal attention over T tokens; `together` heads form a group.
    """
    tiles, costs = by_queries(T, T, rows, keys, causal=True)
    pieces = order(heads, together, tiles)
    ways = {
        "in turn": in_turn(pieces, blocks),
        "to whoever is free first": in_groups(heads, together, tiles, costs, blocks),
    }
    told = [
        f"{name}: the last CTA works {stretch(hands, costs) - 1:.1%} longer than an even share"
        for name, hands in ways.items()
    ]
    title = f"{len(pieces)} pieces of causal attention, dealt to {blocks} CTAs"
    describe = f"Bars of how long each CTA works, dealt {'; '.join(told)}."
    high = len(ways) * (PANEL + GAP) - 10
    figure = Figure.small(WIDE, high, title, describe)
    most = max(max(loads(hands, costs)) for hands in ways.values())
    for i, (hands, words) in enumerate(zip(ways.values(), told, strict=True)):
        bottom = i * (PANEL + GAP) + GAP + PANEL - 18
        figure.words(0, bottom - PANEL - 10, words[0].upper() + words[1:], font_size=11)
        _panel(figure, loads(hands, costs), most, bottom)
    return str(figure)


def _panel(figure: Figure, worked: Sequence[float], most: float, bottom: float) -> None:
    pitch = WIDE / len(worked)
    boxes = [
        (block * pitch, bottom - PANEL * load / most, max(pitch - 0.6, 0.6), PANEL * load / most)
        for block, load in enumerate(worked)
    ]
    figure.boxes(boxes, **BAR.paint(), stroke=INK, stroke_opacity=0.25, stroke_width=0.3)
    even = bottom - PANEL * sum(worked) / len(worked) / most
    figure.line(0, even, WIDE, even, stroke_dasharray="5 3")
    figure.line(0, bottom, WIDE, bottom)
