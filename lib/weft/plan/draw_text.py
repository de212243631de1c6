"""A timeline as a grid of characters: a row per rank, time to the right."""

from math import ceil

from weft.plan.timeline import Span, Timeline

INDENT = 9  # room for "rank 12  "
IDLE, BLOCKED = ".", "~"
BACKGROUND = {"F": (74, 153), "B": (214, 223), "W": (36, 115)}  # of even and odd stages, 256 colours


def text(timeline: Timeline, width: int = 100, color: bool = False) -> str:
    """The timeline in plain characters, in lines of at most `width`.

    A cell is as wide as its action lasts and carries its name where that fits, else its kind.
    Idle time is dots, time blocked in a message is "~". Every second stage of a rank is in lower
    case. With `color`, cells are painted with ANSI codes as well.

    >>> from weft.plan.pipeline import one_f_one_b
    >>> from weft.plan.simulate import simulate
    >>> print(text(simulate(one_f_one_b(p=2, m=3)), width=60))
    time     0         5              10
    rank 0   F0 F1 ...BW0   F2 BW1   ...BW2
    rank 1   ...F0 BW0   F1 BW1   F2 BW2   ...
    one_f_one_b, p = 2, m = 3: makespan 12, idle 25.0 % of the time, at most 2 live activations
    """
    if width < INDENT + 20:
        raise ValueError(f"width is {width}, must be at least {INDENT + 20}")
    scale = _scale(timeline, width - INDENT)
    lines = [_axis(timeline.makespan, scale)]
    for rank, row in enumerate(timeline.rows):
        lines.append(f"rank {rank}".ljust(INDENT) + _row(timeline, row, scale, color))
    return "\n".join([*lines, _summary(timeline)])
