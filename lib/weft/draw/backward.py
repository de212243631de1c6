"""Pictures of the backward pass: who adds to which dQ when, its clock, and one score's rounding."""

import random
from collections.abc import Sequence

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure, Scale, dashed
from weft.plan.arguments import sizes
from weft.plan.backward import (
    BACKWARD_TILES,
    IN_TURN,
    STEP_UNITS,
    BackwardStretch,
    BackwardTile,
    DqAddition,
    ScoreErrors,
    additions,
    score_errors,
    step_timeline,
    turned,
    used,
)
from weft.plan.units import amount, percent

WIDE, LEFT = 360, 66
ALONE, CROWD = svg.FORWARD, svg.STUCK
WAIT = dashed("3 2", 0.6)


# --- who adds to which dQ, and when ---------------------------------------------------------------

PANELS = (  # heading, causal, order of the queries, whether additions have an order
    ("no mask, from the first query, atomic", False, "up", False),
    ("no mask, shifted, in order", False, "shifted", True),
    ("causal, from the first query, in order", True, "up", True),
    ("causal, from the last query, in order", True, "down", True),
    ("causal, last keys first, in order", True, "spt", True),
)


def jam_svg(queries: int = 6, keys: int = 6, panels: Sequence[int] = (0, 1, 2, 3, 4)) -> str:
    """A row for each program, a cell for each tile of dQ that it adds to, time to the right."""
    queries, keys = sizes(queries=queries, keys=keys)
    games = [
        (PANELS[i][0], additions(queries, keys, 1, keys, *PANELS[i][1:3], ordered=PANELS[i][3]))
        for i in panels
    ]
    told = " ".join(f"{name}: {_told(steps, keys)}" for name, steps in games)
    return _jam(games, keys, "Who adds to which tile of dQ, and when", told)


def steps_svg(steps: list[DqAddition], keys: int, title: str) -> str:
    """One game of a single head, as a panel of `jam_svg`."""
    (keys,) = sizes(keys=keys)
    return _jam([(title, steps)], keys, f"Additions to dQ: {title}", _told(steps, keys))


def _jam(games, keys: int, title: str, told: str) -> str:
    high = 15 if keys <= 8 else 10
    clocks = max(one.added for _, steps in games for one in steps)
    panel = 22 + keys * high + 8
    figure = Figure.small(WIDE, 24 + panel * len(games), title, told)
    looks = [("alone at its dQ", ALONE.paint(0.3)), ("with others", CROWD.paint(0.15))]
    svg.legend(figure, [*looks, ("waits", WAIT)])
    x = Scale(0, clocks, LEFT, WIDE - 2)
    for i, (name, steps) in enumerate(games):
        top = 24 + panel * i
        figure.words(0, top + 13, name, font_weight="bold")
        told = f"{amount(waited(steps))} steps waited"
        figure.words(WIDE, top + 13, told, text_anchor="end")
        for key in range(keys):
            y = top + 22 + key * high
            if high > 12 or not key % 2:
                figure.words(0, y + high - 4, f"keys {key}", font_size=11)
            mine = sorted((one for one in steps if one.key == key), key=lambda one: one.start)
            _waits(figure, x, y, high - 2, mine)
            for one in mine:
                look = CROWD.paint(0.15) if met(one, steps) else ALONE.paint(0.3)
                box = {"x": x(one.start), "y": y, "width": x(one.ready) - x(one.start)}
                tip = f"keys {key} add to dQ {one.query}, at {amount(one.added)}"
                figure.mark("rect", tip=tip, height=high - 2, **box, **look, **OUTLINE)
                if box["width"] > 12:
                    middle = (x(one.start) + x(one.ready)) / 2
                    figure.words(
                        middle, y + high - 4.5, str(one.query),
                        text_anchor="middle", font_size=10, fill=svg.INK, pointer_events="none",
                    )  # fmt: skip
    return str(figure)


def _waits(figure, x: Scale, y: float, high: float, mine: list[DqAddition]) -> None:
    """Grey between a program's steps, and after the last until it is added."""
    ends = [0.0, *(one.ready for one in mine)]
    starts = [*(one.start for one in mine), mine[-1].added]
    gaps = [(a, b) for a, b in zip(ends, starts, strict=True) if b > a]
    figure.boxes([(x(a), y, x(b) - x(a), high) for a, b in gaps], **WAIT)


def met(one: DqAddition, steps: list[DqAddition]) -> bool:
    """Whether another program computes a part of the same dQ at the same time."""
    return any(
        other.query == one.query and other.key != one.key
        and other.start < one.ready and one.start < other.ready
        for other in steps
    )  # fmt: skip


def waited(steps: list[DqAddition]) -> float:
    """The clocks between a program's steps, and until its last part has been added, all told."""
    ends: dict[int, float] = {}
    for one in steps:
        ends[one.key] = max(ends.get(one.key, 0.0), one.added)
    return sum(ends.values()) - len(steps)


def _told(steps: list[DqAddition], keys: int) -> str:
    end = max(one.added for one in steps)
    crowded = sum(met(one, steps) for one in steps)
    return (
        f"{amount(end)} steps long, {percent(used(steps, keys))} of the time at work, "
        f"{amount(waited(steps))} steps waited, {crowded} of {len(steps)} steps at a dQ for which "
        "another program computes at the same time."
    )


# --- one multiprocessor's clock -------------------------------------------------------------------

LABELS = dict(zip(STEP_UNITS, ("matmuls", "exp", "dS", "load", "add dQ"), strict=True))
HUES = {
    "S": svg.FORWARD.paint(), "P": svg.FORWARD.paint(0.5), "dP": svg.INPUT_GRADIENT.paint(0.5),
    "dS": svg.INPUT_GRADIENT.paint(0.5), "dQ": svg.INPUT_GRADIENT.paint(),
    "dV": svg.WEIGHT_GRADIENT.paint(0.35), "dK": svg.WEIGHT_GRADIENT.paint(0.1),
    "Q": svg.TRAVEL.paint(), "dO": svg.TRAVEL.paint(), "+=": svg.WAITING.paint(),
}  # fmt: skip


def clock_svg(tile: BackwardTile = BACKWARD_TILES[128, True]) -> str:
    """The steady state of both orders, in the same clocks: one after the other, and overlapped."""
    games = [(way, step_timeline(tile, 8, way)) for way in (False, True)]
    starts = [_start_of(found, "S", 4) for _, found in games]
    period = _start_of(games[0][1], "S", 5) - starts[0]
    clocks = period * 1.25
    panel = 24 + len(STEP_UNITS) * 22 + 6
    told = " ".join(
        f"{_name(way)}: {_order(found)}, {amount(_period(found))} clocks a step."
        for way, found in games
    )
    figure = Figure.small(WIDE, 8 + 2 * panel + 20, "The clock of one backward step", told)
    x = Scale(0, clocks, LEFT - 14, WIDE - 44)
    for i, ((way, found), start) in enumerate(zip(games, starts, strict=True)):
        top = 8 + i * panel
        busy = sum(one.end - one.start for one in found if one.unit == "tensor" and one.step == 4)
        figure.words(0, top + 12, _name(way), font_weight="bold")
        figure.words(
            WIDE, top + 12, f"tensor cores {percent(busy / _period(found))}", text_anchor="end"
        )
        svg.time_lines(figure, x, top + 20, top + panel - 6, clocks, "clocks")
        for row, unit in enumerate(STEP_UNITS):
            y = top + 22 + row * 22
            figure.words(0, y + 13, LABELS[unit], font_size=11)
            for one in found:
                if one.unit == unit:
                    _stretch(figure, x, y, one, start, clocks)
    svg.time_labels(figure, x, 8 + 2 * panel + 12, clocks, "clocks")
    return str(figure)


def _name(overlapped: bool) -> str:
    return "overlapped" if overlapped else "one after the other"


def _start_of(found: list[BackwardStretch], name: str, step: int) -> float:
    return next(one.start for one in found if (one.name, one.step) == (name, step))


def _period(found: list[BackwardStretch]) -> float:
    return _start_of(found, "S", 5) - _start_of(found, "S", 4)


def _order(found: list[BackwardStretch]) -> str:
    mine = sorted((one for one in found if one.step == 4), key=lambda one: one.start)
    return "in the order " + ", ".join(one.name for one in mine if one.name in IN_TURN)


def _stretch(figure, x: Scale, y: float, one: BackwardStretch, start: float, clocks: float) -> None:
    a, b = max(0.0, one.start - start), min(clocks, one.end - start)
    if b <= a:
        return
    box = {"x": x(a), "y": y, "width": x(b) - x(a), "height": 18}
    tip = f"{one.name} of tile {one.step}, {amount(one.end - one.start)} clocks"
    figure.mark("rect", tip=tip, **box, **HUES[one.name], **OUTLINE)
    if box["width"] > svg.measure(one.name, 10) + 3:
        figure.words(
            (x(a) + x(b)) / 2, y + 13, one.name,
            text_anchor="middle", font_size=10, fill=svg.INK, pointer_events="none",
        )  # fmt: skip


# --- one score in eight bits ----------------------------------------------------------------------


def outlier_pair(width: int = 16, seed: int = 1) -> tuple[ScoreErrors, ScoreErrors]:
    """A query and a key with an outlier in the same place, rounded as they are and rotated.

    >>> plain, rotated = outlier_pair()
    >>> abs(plain.off) > 10 * abs(rotated.off)
    True
    """
    (width,) = sizes(width=width)
    dice = random.Random(seed)
    q, k = ([dice.gauss(0, 1) for _ in range(width)] for _ in range(2))
    q[width // 3], k[width // 3] = 21.7, -17.3
    signs = [dice.choice((1, -1)) for _ in range(width)]
    return score_errors(q, k), score_errors(turned(q, signs), turned(k, signs))


def outlier_svg(width: int = 16) -> str:
    """The numbers of a query, and what rounding adds to each product of one score."""
    games = tuple(zip(("as they are", "rotated"), outlier_pair(width), strict=True))
    most = max(abs(a) for _, one in games for a in one.q)
    worst = max(abs(a) for _, one in games for a in (*one.errors, one.off))
    told = " ".join(
        f"{name}: the largest number of the query is {amount(max(map(abs, one.q)))}, the largest "
        f"error of a product {amount(max(map(abs, one.errors)))}, of the score {amount(one.off)}."
        for name, one in games
    )
    panel, up, down = 168, 46, 60
    figure = Figure.small(WIDE, 24 + 2 * panel, "One outlier, rounded and rotated", told)
    looks = (("query", svg.FORWARD.paint(0.3)), ("error of a product", svg.STUCK.paint(0.3)))
    svg.legend(figure, [*looks, ("of the score", svg.STUCK.paint())])
    step = (WIDE - 64) / (width + 2)
    for i, (name, one) in enumerate(games):
        top = 24 + i * panel
        figure.words(0, top + 13, name, font_weight="bold")
        for base, values, tall, unit, look in (
            (top + 20 + up, one.q, up - 4, most, looks[0][1]),
            (top + 30 + up + down, one.errors, down - 8, worst, looks[1][1]),
        ):
            figure.line(0, base, WIDE, base, stroke_opacity=0.4)
            _bars(figure, values, step, base, tall / unit, look)
        base, scale = top + 30 + up + down, (down - 8) / worst
        at = (width + 0.7) * step
        _bars(figure, (one.off,), step, base, scale, svg.STUCK.paint(), at, 1.6)
        figure.words(WIDE, base - 6, f"{one.off:+.1f}", text_anchor="end", font_weight="bold")
    return str(figure)


def _bars(figure, values, step, base, scale, look, at=0.0, wide=1.0) -> None:
    for i, value in enumerate(values):
        high = abs(value) * scale
        box = {"x": at + i * step + 1, "y": base - high if value > 0 else base}
        tip = f"{value:+.2f}"
        figure.mark("rect", tip=tip, width=step * wide - 2, height=high, **box, **look)
