"""Who holds what after each step of a collective, and who has just sent to whom."""

from collections import Counter
from math import cos, pi, sin

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Colour, Figure, dashed, measure, number
from weft.plan.collectives import Held, Send, Steps, play

WIDE = 480
CELL, SMALL, NUMBERED = 24, 20, 13  # sides of cells; the smallest that carries a number
ROUND, NODE = 84, 14  # radius of the circle of ranks, and of a rank
LABEL = 0.38  # how far along its arrow a label stands: opposite arrows keep theirs apart
PARTIAL = Colour("weft-partial", "#88BBEE")
WHOLE = Colour("weft-whole", "#44BB99")
EMPTY = dashed("2 2", 0.35)
NEW = {"stroke": svg.INK, "stroke_width": 2}
NAMES = {
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "broadcast": "broadcast",
}


def film_svg(steps: Steps) -> str:
    """A map for the start and one for the state after each step, from left to right.

    A row is a rank and a column a chunk. A cell tells how many ranks' data is in this copy of the
    chunk; one that has just arrived or grown has a thick edge.
    """
    states = play(steps)
    each = min(SMALL, max(8, 200 / steps.chunks))
    wide, high = each * steps.chunks, each * steps.n
    left = 12 + measure(f"rank {steps.n - 1}", 11)
    columns = max(1, min(len(states), int((WIDE - left + 20) // (wide + 20))))
    rows = -(-len(states) // columns)
    width = max(WIDE, left + columns * (wide + 20))
    figure = Figure.small(
        width,
        28 + rows * (high + 40) - 6,
        f"{_name(steps)} on {steps.n} ranks: who holds what after each step",
        _describe(steps, states),
    )
    svg.legend(figure, _keys(steps))
    for at, held in enumerate(states):
        x, y = left + at % columns * (wide + 20), 50 + at // columns * (high + 40)
        figure.words(x, y - 6, "start" if not at else f"step {at}", font_size=11)
        if at % columns == 0:
            _ranks(figure, steps.n, y, each)
        _map(figure, steps, held, steps[at - 1] if at else [], x, y, each)
    return str(figure)


def step_svg(steps: Steps, at: int) -> str:
    """One step: its messages between the ranks on a circle, and the map of who holds what then.

    `at` counts from 1; 0 is the start, before any message.
    """
    if isinstance(at, bool) or at not in range(len(steps) + 1):
        raise ValueError(f"at is {at!r}, must be a step from 0 to {len(steps)}")
    sends, held = (steps[at - 1] if at else []), play(steps)[at]
    middle = ROUND + NODE + 4
    left = 2 * middle + 12 + measure(f"rank {steps.n - 1}", 11)
    each = min(CELL, max(6, (WIDE - left) / steps.chunks))
    width = max(WIDE, left + each * steps.chunks)
    high = max(2 * middle, 28 + each * steps.n)
    figure = Figure.small(
        width,
        26 + high,
        f"{_name(steps)} on {steps.n} ranks: " + (f"step {at} of {len(steps)}" if at else "start"),
        _describe_step(steps, sends, held),
    )
    svg.legend(figure, _keys(steps))
    _circle(figure, steps.n, sends, middle, 26 + middle)
    top = 26 + max(0, (high - 28 - each * steps.n) / 2) + 24
    figure.words(left, top - 6, "chunk", font_size=11)
    _ranks(figure, steps.n, top, each, left)
    _map(figure, steps, held, sends, left, top, each)
    return str(figure)


def _name(steps: Steps) -> str:
    return NAMES[steps.op].capitalize()


def _keys(steps: Steps) -> list[svg.Key]:
    whole = "the sum of all" if _most(steps) > 1 else "has it"
    part = [("part of the sum", PARTIAL.paint(0.4) | OUTLINE)] if _most(steps) > 1 else []
    return [
        *part,
        (whole, WHOLE.paint() | OUTLINE),
        ("just came", PARTIAL.paint() | NEW),
        ("nothing", EMPTY),
    ]


def _most(steps: Steps) -> int:
    """How many ranks' data a finished chunk has in it."""
    return steps.n if steps.op in ("all_reduce", "reduce_scatter") else 1


def _ranks(figure: Figure, n: int, y: float, each: float, edge: float | None = None) -> None:
    """The names of the rows, to the left of a map."""
    size = min(11, each)
    for rank in range(n):
        label = f"rank {rank}"
        x = 0 if edge is None else edge - measure(label, size) - 4
        figure.words(x, y + (rank + 0.5) * each + size * 0.36, label, font_size=size)


def _map(
    figure: Figure,
    steps: Steps,
    held: list[Held],
    sends: list[Send],
    x: float,
    y: float,
    each: float,
) -> None:
    """One cell for each rank and chunk; cells that a step has changed get a thick edge."""
    most = _most(steps)
    boxes = {
        (r, i): (x + i * each, y + r * each) for r in range(steps.n) for i in range(steps.chunks)
    }
    figure.boxes([(*boxes[r, i], each, each) for r, i in boxes if i not in held[r]], **EMPTY)
    for rank, copies in enumerate(held):
        for chunk, inside in sorted(copies.items()):
            left, top = boxes[rank, chunk]
            full = inside.total() == most
            look = WHOLE.paint() if full else PARTIAL.paint(1 - inside.total() / most)
            tip = f"rank {rank}, chunk {chunk}: the data of {_told(inside)}"
            box = {"x": left, "y": top, "width": each, "height": each}
            figure.mark("rect", tip=tip, **box, **look, **OUTLINE)
    if each >= NUMBERED and most > 1:
        with figure.group(text_anchor="middle", font_size=11, fill=svg.INK, pointer_events="none"):
            for (rank, chunk), (left, top) in boxes.items():
                if chunk in held[rank]:
                    count = held[rank][chunk].total()
                    figure.words(left + each / 2, top + each / 2 + 4, str(count))
    new = sorted({(send.target, send.chunk) for send in sends})
    inner = [(boxes[key][0] + 1, boxes[key][1] + 1, each - 2, each - 2) for key in new]
    figure.boxes(inner, pointer_events="none", fill="none", **NEW)


def _told(inside: Counter) -> str:
    names = [str(rank) for rank in sorted(inside)]
    return ("rank " if len(names) == 1 else "ranks ") + ", ".join(names)


def _circle(figure: Figure, n: int, sends: list[Send], x: float, y: float) -> None:
    """The ranks on a circle, clockwise from the top, and an arrow for each pair that talks."""
    turn = [2 * pi * rank / n - pi / 2 for rank in range(n)]
    places = [(x + ROUND * cos(a), y + ROUND * sin(a)) for a in turn]
    carried: dict[tuple[int, int], list[Send]] = {}
    for send in sends:
        carried.setdefault((send.source, send.target), []).append(send)
    for (source, target), messages in carried.items():
        _arrow(figure, places[source], places[target], messages, label=len(carried) <= 2 * n)
    for rank, (cx, cy) in enumerate(places):
        figure.mark("circle", cx=cx, cy=cy, r=NODE, fill="none", stroke="currentColor")
        figure.words(cx, cy + 4, str(rank), text_anchor="middle")


def _arrow(figure: Figure, start: tuple, end: tuple, messages: list[Send], label: bool) -> None:
    """From the edge of one circle to that of the other, a little to the right of the middle."""
    (x1, y1), (x2, y2) = start, end
    far = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = (x2 - x1) / far, (y2 - y1) / far
    aside = 3 * -dy, 3 * dx
    x1, y1 = x1 + dx * NODE + aside[0], y1 + dy * NODE + aside[1]
    x2, y2 = x2 - dx * (NODE + 1) + aside[0], y2 - dy * (NODE + 1) + aside[1]
    first = messages[0]
    chunks = ", ".join(str(send.chunk) for send in messages)
    verb = "adds to" if first.reduce else "gives"
    tip = f"rank {first.source} {verb} rank {first.target}: chunk {chunks}"
    figure.mark(
        "path",
        d=f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}"
        f"M{number(x2 - 7 * dx + 4 * dy)} {number(y2 - 7 * dy - 4 * dx)}L{number(x2)} {number(y2)}"
        f"L{number(x2 - 7 * dx - 4 * dy)} {number(y2 - 7 * dy + 4 * dx)}",
        tip=tip,
        fill="none",
        stroke="currentColor",
        stroke_width=1.25,
    )
    if label:
        inward = 10 * -dy, 10 * dx
        figure.words(
            x1 + LABEL * (x2 - x1) + inward[0],
            y1 + LABEL * (y2 - y1) + inward[1] + 4,
            ("+" if first.reduce else "") + chunks,
            font_size=11,
            text_anchor="middle",
        )


# --- in words -------------------------------------------------------------------------------------


def _describe(steps: Steps, states: list[list[Held]]) -> str:
    told = [
        f"A map for the start and one after each of {len(steps)} steps; rows are the {steps.n} "
        f"ranks, columns the {steps.chunks} chunks."
    ]
    for at, step in enumerate(steps, 1):
        told.append(f"Step {at}: {_sends(step)}; {_finished(steps, states[at])}.")
    return " ".join(told)


def _describe_step(steps: Steps, sends: list[Send], held: list[Held]) -> str:
    what = _sends(sends) if sends else "no message yet"
    return (
        f"Left, {steps.n} ranks on a circle; right, a map of which of {steps.chunks} chunks each "
        f"holds. {what[0].upper()}{what[1:]}; {_finished(steps, held)}."
    )


def _sends(step: list[Send]) -> str:
    return ", ".join(
        f"rank {s.source} {'adds its' if s.reduce else 'gives'} chunk {s.chunk} "
        f"to rank {s.target}{chr(39) + 's' if s.reduce else ''}"
        for s in step
    )


def _finished(steps: Steps, held: list[Held]) -> str:
    whole = [sum(inside.total() == _most(steps) for inside in copies.values()) for copies in held]
    return "finished chunks by rank: " + ", ".join(map(str, whole))
