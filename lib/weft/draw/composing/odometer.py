"""Ranks counted like an odometer: which axis turns fastest decides which link its groups use."""

from itertools import pairwise
from math import prod

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure
from weft.plan.arguments import sizes
from weft.plan.processes import coordinates, groups, nodes

HUES = {"t": svg.FORWARD, "d": svg.WEIGHT_GRADIENT, "p": svg.INPUT_GRADIENT}
NAMES = {"t": "tensor", "d": "data", "p": "pipeline"}
WIDE, LEFT, BOX, ROW, HEAD = 350, 46, 30, 88, 74


def odometer_svg(p: int = 2, d: int = 2, t: int = 4, node: int = 8) -> str:
    """The same ranks numbered twice, a row for each node: t turns fastest, and then p.

    A line joins neighbours in a group; a rank reads as its digits in the order of the axes.
    """
    p, d, t, node = sizes(p=p, d=d, t=t, node=node)
    if p * d * t % node:
        raise ValueError(f"node is {node}, must divide p d t, {p * d * t}")
    count = p * d * t // node
    panel = HEAD + count * ROW - 24
    lengths = {"p": p, "d": d, "t": t}
    orders = [{axis: lengths[axis] for axis in order} for order in ("pdt", "tdp")]
    figure = Figure.small(
        WIDE, 30 + 2 * panel, f"{p * d * t} ranks counted in two orders",
        " ".join(_told(mesh, node) for mesh in orders), largest=1.5,
    )  # fmt: skip
    svg.legend(figure, [(NAMES[axis], hue.paint() | OUTLINE) for axis, hue in HUES.items()])
    for i, mesh in enumerate(orders):
        _panel(figure, 34 + i * panel, mesh, node)
    return str(figure)


def _panel(figure: Figure, top: float, mesh: dict[str, int], node: int) -> None:
    """One way to count: its wheels, and below them the nodes with their lines."""
    for i, (axis, length) in enumerate(mesh.items()):
        x = LEFT + i * 26
        figure.mark("rect", x=x, y=top, width=24, height=26, rx=3, **HUES[axis].paint(), **OUTLINE)
        figure.words(x + 12, top + 18, axis, text_anchor="middle", fill=INK, font_weight="bold")
        figure.words(x + 12, top + 39, str(length), text_anchor="middle", font_size=11)
    figure.words(LEFT + 26 * len(mesh) + 10, top + 12, f"{[*mesh][-1]} turns fastest",
                 font_weight="bold")  # fmt: skip
    away = "leave a node: " + ", ".join(f"{axis} {_leave(mesh, axis, node)}" for axis in HUES)
    figure.words(LEFT + 26 * len(mesh) + 10, top + 30, away, font_size=11)
    each = (WIDE - LEFT) / node
    spots = {r: (LEFT + r % node * each + (each - 4) / 2, top + HEAD + r // node * ROW)
             for r in range(prod(mesh.values()))}  # fmt: skip
    for axis in reversed(mesh):
        for group in groups(mesh, axis):
            for one, other in pairwise(group):
                _link(figure, axis, spots[one], spots[other], f"ranks {one} and {other}")
    for r, (x, y) in spots.items():
        if r % node == 0:
            figure.words(0, y + 18, f"node {r // node}", font_size=11)
        box = {"x": x - each / 2 + 2, "y": y, "width": each - 4, "height": BOX, "rx": 3}
        place = coordinates(r, mesh)
        tip = f"rank {r}: " + ", ".join(f"{axis} {at}" for axis, at in place.items())
        figure.mark("rect", **box, fill="none", stroke="currentColor", tip=tip)
        look = {"text_anchor": "middle", "pointer_events": "none"}
        figure.words(x, y + 13, str(r), **look, font_weight="bold", font_size=11)
        figure.words(x, y + 25, "".join(map(str, place.values())), **look, font_size=10)


def _link(figure: Figure, axis: str, one: tuple, other: tuple, tip: str) -> None:
    """Neighbours of a group: across the gap, in a bow over what is between, or down to a node."""
    (x1, y1), (x2, y2) = one, other
    look = {"fill": "none", **HUES[axis].stroke(4 if axis == "t" else 2.5)}
    tip = f"{NAMES[axis]}: {tip}"
    if y1 == y2:
        high = 5 + 0.2 * (x2 - x1)
        path = f"M{svg.number(x1)} {svg.number(y1)}q{svg.number((x2 - x1) / 2)} "
        path += f"{svg.number(-2 * high)} {svg.number(x2 - x1)} 0"
        figure.mark("path", d=path, **look, tip=tip)
    else:
        figure.mark("path", d=f"M{svg.number(x1)} {svg.number(y1 + BOX)}L{svg.number(x2)} "
                    f"{svg.number(y2)}", **look, tip=tip)  # fmt: skip


def _leave(mesh: dict[str, int], axis: str, node: int) -> str:
    """How many of an axis's groups are on more than one node, of how many."""
    found = groups(mesh, axis)
    away = sum(len(nodes(group, node)) > 1 for group in found)
    return f"{away}/{len(found)}"


def _told(mesh: dict[str, int], node: int) -> str:
    counts = ", ".join(f"{NAMES[axis]} {_leave(mesh, axis, node)}" for axis in mesh)
    return (
        f"With {[*mesh][-1]} fastest, groups that span more than one node of {node} ranks are: "
        f"{counts}."
    )
