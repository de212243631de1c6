"""Two steps of training after each other: with and without waiting for all ranks between them."""

from dataclasses import replace

from weft.draw.pipeline.compare import compare_svg
from weft.plan.schedule import Plan
from weft.plan.simulate import Timeline, simulate


def steps_svg(plan: Plan, f: float = 1.0, b: float = 1.0, w: float = 1.0, width: int = 420) -> str:
    """A step and the next one, whose microbatches are numbered on, on one time axis.

    Above, the optimizer waits for all ranks, so the second step starts when the last rank has
    ended the first. Below, each rank steps on its own, so the second fills where the first drains.
    """
    waited, free = two_steps(plan, f, b, w)
    labels = "the optimizer waits for all ranks", "each rank goes on by itself"
    return compare_svg([waited, free], labels, tips=False, width=width)


def two_steps(
    plan: Plan, f: float = 1.0, b: float = 1.0, w: float = 1.0
) -> tuple[Timeline, Timeline]:
    """Two steps of a plan, with all ranks waited for in between, and without.

    >>> from weft.plan.pipeline import zb_h2
    >>> [timeline.makespan for timeline in two_steps(zb_h2(p=3, m=5))]
    [34.0, 32.0]
    """
    m = plan.m

    def later(action):
        return action._replace(microbatch=action.microbatch + m)

    rows = tuple((*row, *map(later, row)) for row in plan.rows)
    both = replace(plan, m=2 * m, rows=rows)
    once = simulate(plan, f, b, w)
    again = [
        span._replace(
            action=later(span.action),
            start=span.start + once.makespan,
            end=span.end + once.makespan,
        )
        for span in once.spans
    ]
    spans = sorted((*once.spans, *again), key=lambda span: (span.rank, span.start))
    return Timeline(both, tuple(spans)), simulate(both, f, b, w)
