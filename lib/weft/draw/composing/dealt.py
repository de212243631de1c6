"""A batch dealt first to data ranks and then to microbatches, and the slots that stay empty."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure, Scale, dashed
from weft.plan.arguments import sizes
from weft.plan.pipeline import overhead

WIDE, TOP, ROW, MOST = 350, 40, 15, 128
BATCH = 64


def dealt_svg(batch: int = BATCH, d: int = 4, microbatch: int = 1, p: int = 8) -> str:
    """A row for each data rank: m boxes of its sequences, and the p - 1 slots of its bubble.

    The length of a box is the time of its microbatch, which grows with the sequences in it.
    """
    batch, d, microbatch, p = sizes(batch=batch, d=d, microbatch=microbatch, p=p)
    if batch > MOST:
        raise ValueError(f"batch is {batch}, must be at most {MOST}")
    if batch % (d * microbatch):
        raise ValueError(
            f"batch is {batch}, must be a multiple of d * microbatch = {d * microbatch}"
        )
    m = batch // (d * microbatch)
    idle = overhead(p, m)
    figure = Figure.small(
        WIDE, TOP + d * ROW + 38, f"{batch} sequences over {d} pipelines of {p} stages",
        _told(batch, d, microbatch, p, m, idle), largest=1.5,
    )  # fmt: skip
    empty = dashed("2 2", 0.6)
    svg.legend(figure, [("a microbatch", svg.FORWARD.paint() | OUTLINE), ("bubble", empty)])
    slots = microbatch * (m + p - 1)
    x = Scale(0, max(BATCH / 2 + 14, slots), 0, WIDE - 1)  # one scale for nearly all choices
    figure.words(0, TOP - 6, f"each row a pipeline: m = {batch} / ({d} · {microbatch}) = {m}",
                 font_size=11)  # fmt: skip
    for row in range(d):
        y = TOP + row * ROW
        for slot in range(m):
            wide = x(microbatch) - x(0) - 1
            first = slot * microbatch + row * m * microbatch
            box = {"x": x(slot * microbatch), "y": y, "width": wide, "height": ROW - 4}
            tip = f"sequences {first} to {first + microbatch - 1}"
            figure.mark("rect", **box, **svg.FORWARD.paint(), tip=tip)
        idle_box = {"x": x(m * microbatch), "y": y + 0.5, "height": ROW - 5}
        if p > 1:
            figure.mark("rect", **idle_box, width=x((p - 1) * microbatch) - x(0), **empty)
    end = TOP + d * ROW
    said = f"step: {slots} times one sequence"
    figure.words(0, end + 14, said, font_size=11, font_weight="bold")
    told = f"bubble {idle:.0%} of the work, {idle / (1 + idle):.0%} of the step"
    figure.words(0, end + 30, told, font_size=11)
    return str(figure)


def _told(batch: int, d: int, microbatch: int, p: int, m: int, idle: float) -> str:
    return (
        f"{d} rows of {m} boxes, each a microbatch of {microbatch}, together the {batch} sequences "
        f"of the batch. Every row ends in a bubble of {p - 1} such boxes: {idle:.0%} of its work."
    )
