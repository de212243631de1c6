"""A timeline as a grid of characters: a row per rank, time to the right."""

from collections.abc import Iterator
from math import ceil, floor

from weft.draw.figure import Scale
from weft.plan.simulate import Span, Timeline
from weft.plan.units import amount, percent

INDENT = 9  # room for "rank 12  "
IDLE, BLOCKED = ".", "~"
PAPER = {"F": (74, 153), "B": (214, 223), "W": (36, 115)}  # ANSI, by the parity of the stage


def text(timeline: Timeline, width: int = 100, color: bool = False) -> str:
    """The timeline in plain characters, the grid in lines of at most `width`.

    A cell is as wide as its action lasts and carries its name where that fits, else its kind.
    Idle time is dots, time blocked in a message is "~". Every second stage of a rank is in lower
    case. With `color`, cells are painted with ANSI codes as well.

    >>> from weft.plan.pipeline import one_f_one_b
    >>> from weft.plan.simulate import simulate
    >>> print(text(simulate(one_f_one_b(p=2, m=3))))
    time     0              5              10    12
    rank 0   F0 F1 ...BW0   F2 BW1   ...BW2
    rank 1   ...F0 BW0   F1 BW1   F2 BW2   ......
    one_f_one_b, p = 2, m = 3: makespan 12, idle 25.0 % of the time, at most 2 live activations
    """
    if width < INDENT + 20:
        raise ValueError(f"width is {width}, must be at least {INDENT + 20}")
    scale = _columns(timeline, width - INDENT)
    lines = ["time".ljust(INDENT) + _axis(timeline.makespan, scale)]
    for rank in range(timeline.plan.p):
        cells = "".join(_cells(timeline, rank, scale, color))
        lines.append((f"rank {rank}".ljust(INDENT) + cells).rstrip())
    lines.append(summary(timeline))
    if timeline.makespan and any(_too_narrow(span, scale) for span in timeline.spans):
        lines.append(f"(a character is {amount(timeline.makespan / scale.stop)} of time)")
    return "\n".join(lines)


def _too_narrow(span: Span, scale: Scale) -> bool:
    """Whether an action is left without its name."""
    wide = _column(scale, span.end) - _column(scale, span.start)
    return span.computes and span.end > span.start and len(str(span.action)) > wide


def summary(timeline: Timeline) -> str:
    """The step in one line: what ran, how long, how idle, how much alive."""
    plan = timeline.plan
    stages = f", v = {plan.v}" if plan.v > 1 else ""
    peak = max(timeline.peak_live)
    return (
        f"{plan.name}, p = {plan.p}, m = {plan.m}{stages}: "
        f"makespan {amount(timeline.makespan)}, idle {percent(timeline.bubble)} of the time, "
        f"at most {peak} live activation{'' if peak == 1 else 's'}"
    )


def _columns(timeline: Timeline, room: int) -> Scale:
    """From time to columns: wide enough for every name if there is room, on whole columns if not.

    The preferred grid leaves a blank after every name; the next does without.
    """
    end = timeline.makespan
    spans = [s for s in timeline.spans if s.computes and s.end > s.start]
    if not spans:
        return Scale(0, 1, 0, 0)
    step = _step(timeline, min(s.end - s.start for s in spans))
    for blank in (1, 0):
        each = max((len(str(s.action)) + blank) / (s.end - s.start) for s in spans)
        if step:
            each = ceil(each * step - 1e-9) / step
        columns = ceil(each * end - 1e-9)
        if columns <= room:
            return Scale(0, end, 0, columns)
    whole = floor(room * step / end) if step else 0
    return Scale(0, end, 0, round(whole * end / step) if whole else room)


def _step(timeline: Timeline, shortest: float) -> float | None:
    """The unit that all times are whole multiples of, if there is one near the shortest span."""
    times = {s.end for s in timeline.spans}
    for parts in (1, 2, 3, 4):
        step = shortest / parts
        if all(abs(time / step - round(time / step)) < 1e-6 for time in times):
            return step
    return None


def _column(scale: Scale, time: float) -> int:
    """How many columns have their middle before a time: what is drawn is what those middles see."""
    return ceil(scale(time) - 0.5 - 1e-9)


def _cells(timeline: Timeline, rank: int, scale: Scale, color: bool) -> Iterator[str]:
    stages = timeline.plan.stages_of(rank)
    at = 0
    for span in timeline.row(rank):
        start, end = _column(scale, span.start), _column(scale, span.end)
        yield IDLE * (start - at)
        start = max(start, at)
        yield _cell(span, stages.index(span.action.stage) % 2, end - start, color)
        at = max(end, start)
    yield IDLE * (_column(scale, timeline.makespan) - at)


def _cell(span: Span, odd: int, width: int, color: bool) -> str:
    """A name and blanks up to the width, or as many letters of the kind as fit."""
    if not span.computes:
        return BLOCKED * width
    kind, name = span.action.kind, str(span.action)
    letters = (name if len(name) <= width else kind[:width]).ljust(width)
    if odd:
        letters = letters.lower()
    if not color:
        return letters
    middle = ceil(width / 2) if kind == "BW" else width
    return _painted(kind[0], odd, letters[:middle]) + _painted("W", odd, letters[middle:])


def _painted(kind: str, odd: int, letters: str) -> str:
    return f"\x1b[38;5;16;48;5;{PAPER[kind][odd]}m{letters}\x1b[0m" if letters else ""


def _axis(end: float, scale: Scale) -> str:
    """Round times above the columns where they begin, and the end where it is."""
    line, last = "", amount(end)
    stop = _column(scale, end)
    for tick in Scale(0, end, 0, stop).ticks(most=max(1, stop // 12)):
        column = _column(scale, tick)
        if len(line) < column + (column == 0) and column + len(amount(tick)) < stop:
            line = line.ljust(column) + amount(tick)
    return f"{line} {last}" if len(line) >= stop else line.ljust(stop) + last
