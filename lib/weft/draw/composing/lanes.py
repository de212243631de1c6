"""Two lanes on one clock, four times: what a device computes, what its link carries, what waits."""

from typing import NamedTuple

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure, Scale

WIDE, LEFT, LANE, CASE, TOP = 350, 52, 22, 84, 40
COMPUTE, LINK = "compute", "link"
HIDDEN, ALONE = svg.TRAVEL.paint() | OUTLINE, svg.STUCK.paint() | OUTLINE
LOOKS = {"F": svg.FORWARD.paint() | OUTLINE, "B": svg.INPUT_GRADIENT.paint() | OUTLINE}


class Lane(NamedTuple):
    """Something that a lane does from `start` to `end`."""

    lane: str
    name: str
    start: float
    end: float


def gradients(layers: int = 4, compute: float = 10, send: float = 8) -> list[Lane]:
    """Backward makes a bucket for each layer, which is sent while the next is computed."""
    cells, free = [], 0.0
    for i in range(layers):
        cells.append(Lane(COMPUTE, f"B{layers - i}", i * compute, (i + 1) * compute))
        start = max(free, (i + 1) * compute)
        free = start + send
        cells.append(Lane(LINK, str(layers - i), start, free))
    return cells


def gathers(layers: int = 4, compute: float = 10, send: float = 8) -> list[Lane]:
    """A layer computes once its weights have come; those of the next come meanwhile."""
    cells, here, free = [], 0.0, 0.0
    for i in range(layers):
        cells.append(Lane(LINK, str(i + 1), free, free + send))
        start = max(here, free + send)
        cells.append(Lane(COMPUTE, f"F{i + 1}", start, start + compute))
        here, free = start + compute, start
    return cells


def reductions(halves: int = 4, compute: float = 10, send: float = 2) -> list[Lane]:
    """Each half layer ends in an all-reduce, whose result the next half begins with."""
    cells, at = [], 0.0
    for i in range(halves):
        cells.append(Lane(COMPUTE, f"F{i // 2 + 1} {('att.', 'MLP')[i % 2]}", at, at + compute))
        cells.append(Lane(LINK, "", at + compute, at + compute + send))
        at += compute + send
    return cells


def messages(cells: int = 4, compute: float = 10, send: float = 3) -> list[Lane]:
    """A stage in its steady state: what it sends is wanted by others, and it has other work."""
    made = [(f"{'FB'[i % 2]}{i // 2 + (3 if i % 2 == 0 else 1)}", i * compute)
            for i in range(cells)]  # fmt: skip
    return [cell for name, at in made for cell in (
        Lane(COMPUTE, name, at, at + compute), Lane(LINK, "", at + compute, at + compute + send))
    ][:-1]  # fmt: skip


CASES = (
    ("data: gradients, in buckets", gradients()),
    ("ZeRO-3: weights, a layer ahead", gathers()),
    ("tensor: the next matmul needs it", reductions()),
    ("pipeline: between other work", messages()),
)


def exposed(cells: list[Lane]) -> list[tuple[float, float]]:
    """When the link is busy and nothing is computed.

    >>> exposed(gradients())
    [(40, 48)]
    """
    busy = sorted((c.start, c.end) for c in cells if c.lane == COMPUTE)
    found = []
    for start, end in sorted((c.start, c.end) for c in cells if c.lane == LINK):
        for a, b in busy:
            if start < a < end:
                found.append((start, a))
            start = max(start, min(b, end)) if a < end else start
        if start < end:
            found.append((start, end))
    return found


def lanes_svg() -> str:
    """Four kinds of messages beside computing; what sticks out alone is in the exposed colour."""
    end = max(c.end for _, cells in CASES for c in cells)
    figure = Figure.small(
        WIDE, TOP + len(CASES) * CASE - 30, "What is computed and what is sent, on one clock",
        _told(), largest=1.5,
    )  # fmt: skip
    svg.legend(figure, [("forward", LOOKS["F"]), ("backward", LOOKS["B"]),
                        ("hidden", HIDDEN), ("exposed", ALONE)])  # fmt: skip
    x = Scale(0, end, LEFT, WIDE - 2)
    for i, (name, cells) in enumerate(CASES):
        top = TOP + i * CASE
        figure.words(0, top, name, font_weight="bold", font_size=11)
        figure.words(WIDE, top, f"exposed: {_share(cells)}", text_anchor="end", font_size=11)
        figure.words(0, top + 22, "computes", font_size=10)
        figure.words(0, top + 22 + LANE, "sends", font_size=10)
        for c in cells:
            down, look = (LANE, HIDDEN) if c.lane == LINK else (0, LOOKS[c.name[:1]])
            _cell(figure, x, top + 7 + down, c.start, c.end, look)
        for a, b in exposed(cells):
            _cell(figure, x, top + 7 + LANE, a, b, ALONE)
        for c in cells:
            middle, down = (x(c.start) + x(c.end)) / 2, LANE if c.lane == LINK else 0
            look = {"text_anchor": "middle", "fill": INK, "font_size": 10}
            if c.name:
                figure.words(middle, top + 21 + down, c.name, **look)
    return str(figure)


def _cell(figure: Figure, x: Scale, y: float, start: float, end: float, look: dict) -> None:
    box = {"x": x(start), "y": y, "width": x(end) - x(start), "height": LANE - 3}
    figure.mark("rect", **box, **look, tip=f"from {start:g} to {end:g}")


def _share(cells: list[Lane]) -> str:
    """How much of all sending is exposed."""
    alone = sum(b - a for a, b in exposed(cells))
    return f"{alone:g} of {sum(c.end - c.start for c in cells if c.lane == LINK):g}"


def _told() -> str:
    said = "; ".join(f"{name}, {_share(cells)}" for name, cells in CASES)
    return f"Four pairs of lanes, with the units of sending that nothing hides: {said}."
