"""The way of one microbatch through 1F1B: down the ranks, back up, and what starts then."""

from itertools import pairwise

from weft.draw import figure as svg
from weft.draw.figure import Scale, number
from weft.draw.pipeline import grid as grid
from weft.plan.arguments import amount, sizes
from weft.plan.pipeline import one_f_one_b
from weft.plan.simulate import Span, Timeline, simulate
from weft.plan.units import amount as said

WIDE = 460


def trip_svg(p: int = 3, m: int = 9, c: float = 0.5) -> str:
    """1F1B with hops of c, and a line that follows one microbatch from rank 0 and back to it.

    It is one of the steady state, which waits nowhere on its way. Where the line ends, rank 0
    starts its next forward: p of them for each round of the line.
    """
    p, m = sizes(p=p, m=m)
    if p < 2 or m < 3 * p:
        raise ValueError(f"p is {p} and m {m}, must be at least 2 and at least 3 p = {3 * p}")
    c = amount("c", c)
    timeline = simulate(one_f_one_b(p, m), c=c)
    left = grid.margin(p)
    x = Scale(0, timeline.makespan, left, WIDE - 12)
    bottom = grid.TOP + p * grid.ROW
    least = 3 * p + 2 * (p - 1) * c
    trips = (trip(timeline, i) for i in range(p - 1, m - p))
    path = next(t for t in trips if t[-1].start - t[0].start < least + 1e-9)
    followed = path[0].action.microbatch
    told = (
        f"{grid.describe(timeline)} A line follows microbatch {followed} from its forward on rank "
        f"0 down to rank {p - 1} and back to its backward on rank 0, after which rank 0 starts "
        f"{path[-1].action}: {said(least)} units for {p} microbatches, of which "
        f"{said(2 * (p - 1) * c)} are hops."
    )
    figure = grid.figure(WIDE, WIDE, bottom + grid.AXIS + 24, "A round trip in 1F1B", told)
    svg.legend(figure, grid.keys([timeline]))
    svg.time_axis(figure, x, grid.TOP, bottom, timeline.makespan, "")
    grid.rows(figure, timeline, x, grid.TOP)
    places = [_ends(span, x) for span in path]
    points = [point for ends in places[:-1] for point in ends] + [places[-1][0]]
    drawn = "M" + "L".join(f"{number(a)} {number(b)}" for a, b in points)
    line = {"fill": "none", "stroke_linejoin": "round"}
    figure.mark("path", d=drawn, stroke="#fff", stroke_width=4.5, stroke_opacity=0.8, **line)
    figure.mark("path", d=drawn, stroke=svg.INK, stroke_width=2, **line)
    a, z, y = x(path[0].start), x(path[-1].start), bottom + grid.AXIS + 4
    for at in (a, z):
        figure.line(at, grid.TOP, at, y + 3, stroke_dasharray="3 3", stroke_width=1)
    figure.line(a, y, z, y, stroke_width=1)
    text = f"{p} (f + b + w) + {2 * (p - 1)} c"
    figure.words((a + z) / 2, y + 15, text, text_anchor="middle")
    return str(figure)


def trip(timeline: Timeline, microbatch: int) -> list[Span]:
    """Its F on each rank, its backward on each rank, and what rank 0 starts after that."""
    p = timeline.plan.p
    of = {(s.rank, s.action.kind, s.action.microbatch): s for s in timeline.spans}
    down = [of[rank, "F", microbatch] for rank in range(p)]
    up = [of[rank, "BW", microbatch] for rank in reversed(range(p))]
    following = next(b for a, b in pairwise(timeline.row(0)) if a is up[-1])
    return [*down, *up, following]


def _ends(span: Span, x: Scale) -> tuple[tuple[float, float], tuple[float, float]]:
    y = grid.TOP + (span.rank + 1) * grid.ROW - 6  # below the numbers
    return (x(span.start), y), (x(span.end), y)
