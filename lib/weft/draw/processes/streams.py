"""What the CPU queues, and when each stream of a GPU runs it."""

from collections.abc import Sequence

from weft.draw import figure as svg
from weft.draw.figure import FORWARD, STUCK, TRAVEL, Figure, Scale, dashed, time_axis
from weft.draw.processes.looks import SAME, WIDE, cell, filled
from weft.plan.processes.streams import COMPUTE, COPY, CPU, Queue, play, too_early

ROWS, LEFT, HIGH = (CPU, COMPUTE, COPY), 104, 30


def streams_svg(queued: Sequence[Queue], issue: float) -> str:
    """Rows for the CPU and two streams; a number is the batch, a dashed line an event."""
    busy = play(queued, issue)
    end = max(b.end for b in busy)
    wrong = too_early(busy)
    figure = Figure.small(
        WIDE,
        34 + len(ROWS) * (HIGH + 8) + 20,
        "The CPU and two streams of a GPU over time",
        _told(busy, wrong),
    )
    keys = [("queue", filled(SAME)), ("copy", filled(TRAVEL)), ("compute", filled(FORWARD))]
    keys += [("CPU waits", dashed("2 2", 0.7))]
    keys += [("too early", filled(STUCK))] if wrong else []
    svg.legend(figure, keys)
    x = Scale(0, end, LEFT, WIDE - 24)
    tops = {row: 28 + i * (HIGH + 8) for i, row in enumerate(ROWS)}
    for row, top in tops.items():
        figure.words(0, top + HIGH / 2 + 4, row, font_size=11)
    time_axis(figure, x, tops[CPU], tops[COPY] + HIGH, end, "µs")
    for b in busy:
        kind, number = (*b.name.split(), "")[:2]
        look = filled(TRAVEL if kind == "copy" else FORWARD)
        look = filled(SAME) if b.row == CPU else look
        look = dashed("2 2", 0.7) if kind == "synchronize" else look
        look = filled(STUCK) if b.row != CPU and b.name in wrong else look
        box = (x(b.start), tops[b.row], x(b.end) - x(b.start), HIGH)
        tip = f"{b.row}: {b.name} from {b.start:g} to {b.end:g} µs"
        cell(figure, box, number if b.row != CPU else "", look, tip)
    ends = {b.name: b for b in busy if b.row != CPU}
    for work in queued:
        if work.after and work.stream != CPU:
            a, b = ends[work.after], ends[work.name]
            figure.line(x(a.end), tops[a.row], x(b.start), tops[b.row] + HIGH,
                        stroke_dasharray="3 2", stroke_width=1.5)  # fmt: skip
    return str(figure)


def _told(busy: Sequence, wrong: Sequence[str]) -> str:
    said = [f"{b.name} on the {b.row} from {b.start:g} to {b.end:g}" for b in busy if b.row != CPU]
    last = max(b.end for b in busy if b.row == CPU and b.name != "synchronize")
    early = f" Too early: {', '.join(wrong)}." if wrong else ""
    return f"The CPU has queued everything at {last:g} µs. {'; '.join(said)}.{early}"
