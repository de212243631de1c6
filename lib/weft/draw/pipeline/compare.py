"""Several timelines under each other on one time axis, so that lengths can be compared."""

from collections.abc import Sequence

from weft.draw import figure as svg
from weft.draw.figure import measure
from weft.draw.pipeline import grid as grid
from weft.plan.simulate import Timeline
from weft.plan.units import moment, percent

HEAD = 20  # room for the label above each grid
BETWEEN = 8


def compare_svg(
    timelines: Sequence[Timeline],
    labels: Sequence[str] | None = None,
    unit: str = "",
    b_share: float | None = None,
    tips: bool = True,
    width: int = grid.WIDEST,
) -> str:
    """Schedule grids stacked at equal scale, each under its label, makespan and idle share.

    `labels` default to the names of the schedules; the rest is as in `weft.draw.pipeline.svg`. A
    `width` below a column of text is for phones: a page may then scale the picture up.
    """
    if not timelines:
        raise ValueError("timelines is empty, must hold at least one")
    labels = [grid.name(t.plan) for t in timelines] if labels is None else list(labels)
    if len(labels) != len(timelines):
        raise ValueError(f"labels has {len(labels)} entries, must have {len(timelines)}")
    left = max(grid.margin(t.plan.p) for t in timelines)
    right = grid.margin_right(timelines, unit)
    x = grid.time_scale(timelines, width - left - right, left)
    tops, bottom = _places(timelines)
    results = [
        f"makespan {moment(t.makespan, unit, t.makespan)}, idle {percent(t.bubble)}"
        for t in timelines
    ]
    heads = (1.1 * measure(a) + 20 + measure(b) for a, b in zip(labels, results, strict=True))
    edge = max(x.stop, *heads)
    keys = grid.keys(timelines)
    wide = max(edge + right, svg.legend_width(keys))
    title = "Schedules compared: " + "; ".join(labels)
    figure = grid.figure(width, wide, bottom + grid.AXIS, title, _describe(timelines, labels, unit))
    svg.legend(figure, keys)
    end = max(t.makespan for t in timelines)
    svg.time_labels(figure, x, bottom + 16, end, unit)
    for timeline, label, result, top in zip(timelines, labels, results, tops, strict=True):
        figure.words(0, top - 6, label, font_weight="bold")
        figure.words(edge, top - 6, result, text_anchor="end")
        svg.time_lines(figure, x, top, top + timeline.plan.p * grid.ROW, end, unit)
        grid.rows(figure, timeline, x, top, unit, b_share, tips)
    return str(figure)


def measured_svg(simulated: Timeline, measured: Timeline, unit: str = "s") -> str:
    """A simulated step above the measured one, both in the same unit of time."""
    if simulated.plan.rows != measured.plan.rows:
        raise ValueError(
            f"measured is of {grid.name(measured.plan)}, must be of the simulated plan, "
            f"{grid.name(simulated.plan)}"
        )
    gap = measured.makespan / simulated.makespan - 1 if simulated.makespan else 0.0
    labels = "simulated", f"measured ({100 * gap:+.1f} %)"
    return compare_svg([simulated, measured], labels, unit)


def _places(timelines: Sequence[Timeline]) -> tuple[list[float], float]:
    """Where each grid begins, and where the last one ends."""
    tops, y = [], grid.TOP
    for timeline in timelines:
        tops.append(y + HEAD)
        y += HEAD + timeline.plan.p * grid.ROW + BETWEEN
    return tops, y - BETWEEN


def _describe(timelines: Sequence[Timeline], labels: Sequence[str], unit: str) -> str:
    return " ".join(
        f"{label}: {grid.describe(timeline, unit)}"
        for label, timeline in zip(labels, timelines, strict=True)
    )
