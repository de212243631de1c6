"""A step of ZeRO in time: what computes, what is on the link, and how much that leaves to wait."""

from collections.abc import Callable, Sequence

from weft.draw import figure as svg
from weft.draw.chart import Axis, Chart, line
from weft.draw.figure import Figure, Scale, dashed, measure
from weft.draw.memory import GRADIENTS, WEIGHTS
from weft.plan.units import binary, moment
from weft.plan.zero import COMPUTE, LINK, Durations, Interval, exposed, simulated, step_seconds

WIDE, ROW, HIGH = 440, 22, 18
FONT = 10.5
OUTLINE = {"stroke": svg.INK, "stroke_opacity": 0.5, "stroke_width": 0.5}
LOOKS = {
    "forward": svg.FORWARD.paint(),
    "backward": svg.INPUT_GRADIENT.paint(),
    "update": {"fill": "currentColor", "fill_opacity": 0.35},
    "all_gather": WEIGHTS.paint(),
    "reduce_scatter": GRADIENTS.paint(),
    "all_reduce": GRADIENTS.paint(),
}
NAMES = {
    "forward": "forward",
    "backward": "backward",
    "update": "update",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_reduce": "all-reduce",
}
HALF = svg.WEIGHT_GRADIENT.paint()  # the second half of a backward
WAITS = dashed("3 2", 0.6)


def steps_svg(stages: Sequence[int], times: Durations, unit: str = "s") -> str:
    """One step under each of some stages on one axis: the device above, its link below.

    A cell carries its bucket's number, if there is room; dashed is the time in which the device
    waits for its link. Bucket 0 has the last parameters, whose gradients are ready first.
    """
    if not len(stages):
        raise ValueError("stages is empty, must have one stage at least")
    end = max(step_seconds(stage, times) for stage in stages)
    spans = {stage: simulated(stage, times) for stage in stages}
    left = 8 + measure("compute")
    x = Scale(0, end or 1.0, left, WIDE - 24)
    block = 22 + 2 * ROW
    bottom = 40 + block * len(stages)
    figure = Figure.small(
        WIDE,
        bottom + 24,
        "One training step, " + ", ".join(f"stage {stage}" for stage in stages),
        _describe(spans, times, unit),
        largest=1.5,
    )
    _legend(figure, spans)
    svg.time_lines(figure, x, 44, bottom + 4, end, unit)
    for i, (stage, row) in enumerate(spans.items()):
        top = 42 + block * i
        waits = exposed(stage, times)
        long, wait = (moment(s, unit, end) for s in (step_seconds(stage, times), waits))
        figure.words(0, top + 12, f"stage {stage}", font_weight="bold")
        figure.words(left, top + 12, f"takes {long}, of which it waits for {wait}")
        for lane, y, until in ((COMPUTE, 20, step_seconds(stage, times)), (LINK, 20 + ROW, 0)):
            figure.words(0, top + y + 13, lane, font_size=11)
            _lane(figure, [s for s in row if s.lane == lane], x, top + y, end, unit, until)
    svg.time_labels(figure, x, bottom + 16, end, unit)
    return str(figure)


def _legend(figure: Figure, spans: dict[int, tuple[Interval, ...]]) -> None:
    """What occurs, in two lines: the device's colours, and the link's."""
    used = {span.op for row in spans.values() for span in row}
    link = {NAMES[op]: LOOKS[op] for op in LOOKS if op in used}
    device = {"forward": link.pop("forward"), "input gradient": link.pop("backward")}
    device["weight gradient"] = HALF
    if "update" in link:
        device["update"] = link.pop("update")
    svg.legend(figure, [(name, look | OUTLINE) for name, look in device.items()])
    both = ", ".join(name for name, look in link.items() if look == LOOKS["all_reduce"])
    link = {both if look == LOOKS["all_reduce"] else name: look for name, look in link.items()}
    keys = [(name, look | OUTLINE) for name, look in link.items()]
    svg.legend(figure, [*keys, ("waits", WAITS)], 33)


def _lane(
    figure: Figure,
    row: Sequence[Interval],
    x: Scale,
    y: float,
    end: float,
    unit: str,
    until: float = 0.0,
) -> None:
    """The cells of one lane, and where the device waits, if it does, `until` the step is over."""
    now = 0.0
    for span in row:
        if until:
            _wait(figure, now, span.start, x, y, end, unit)
        _cell(figure, span, x, y, end, unit)
        now = span.end
    if until:
        _wait(figure, now, until, x, y, end, unit)


def _wait(figure: Figure, start: float, stop: float, x: Scale, y: float, end: float, unit) -> None:
    if x(stop) - x(start) > 0.5:
        tip = f"waits for {moment(stop - start, unit, end)}"
        box = {"x": x(start), "y": y, "width": x(stop) - x(start), "height": HIGH}
        figure.mark("rect", **box, **WAITS, pointer_events="all", tip=tip)


def _cell(figure: Figure, span: Interval, x: Scale, y: float, end: float, unit: str) -> None:
    """One span; backward is half of each gradient, as in the book's schedules."""
    left, wide = x(span.start), x(span.end) - x(span.start)
    from_to = " to ".join(moment(time, unit, end) for time in (span.start, span.end))
    tip = f"{NAMES[span.op]}, bucket {span.bucket}: {from_to}"
    look = LOOKS[span.op] | (OUTLINE if wide > 3 else {})
    figure.mark("rect", x=left, y=y, width=wide, height=HIGH, **look, tip=tip)
    if span.op == "backward":
        half = {"x": left + wide / 2, "y": y, "width": wide / 2, "height": HIGH}
        figure.mark("rect", **half, **HALF, pointer_events="none")
    need = measure(str(span.bucket), FONT) + 2
    if span.op != "update" and wide > need:
        middle = left + wide / (4 if span.op == "backward" and wide / 2 > need else 2)
        look = {"font_size": FONT, "text_anchor": "middle", "fill": svg.INK}
        figure.words(middle, y + 13, str(span.bucket), pointer_events="none", **look)


def _describe(spans: dict[int, tuple[Interval, ...]], times: Durations, unit: str) -> str:
    end = max(span.end for row in spans.values() for span in row)
    count = len(times.forward)
    told = [f"Two lanes for each stage, the device and its link, {count} buckets."]
    for stage, row in spans.items():
        long = moment(step_seconds(stage, times), unit, end)
        wait = moment(exposed(stage, times), unit, end)
        link = sum(span.end - span.start for span in row if span.lane == LINK)
        told.append(
            f"Stage {stage}: {long}, waiting {wait}; the link is busy {moment(link, unit, end)}."
        )
    return " ".join(told)


def buckets_svg(curve: Callable[[float], float], nbytes: float, title: str) -> str:
    """The time that a device waits, over the size of a bucket in bytes; a dot at one size."""
    least, most = 2**18, 2**33
    if not least <= nbytes <= most:
        raise ValueError(f"nbytes is {nbytes!r}, must be from {least} to {most}")
    sizes = [2.0 ** (18 + i / 4) for i in range(61)]
    times = [curve(size) for size in sizes]
    same = min(times) * (1 + 1e-9)  # where many are as good, rounding is not to choose
    best = next(size for size, time in zip(sizes, times, strict=True) if time <= same)
    unit = "s"
    told = (
        f"A curve of waiting over the size of a bucket. It is lowest at about {binary(best)}, with "
        f"{moment(min(times), unit, min(times))}; at {binary(nbytes)} it is "
        f"{moment(curve(nbytes), unit, curve(nbytes))}."
    )
    most_time = 1.08 * max(times) or 1.0
    x = Axis("bytes in a bucket", least, most, binary, True, [2**k for k in range(18, 34, 3)])
    y = Axis("waiting in a step", 0, most_time, lambda time: moment(time, unit, most_time))
    chart = Chart(title, told, x, y)
    chart.curve(zip(sizes, times, strict=True), line(0))
    tip = f"{binary(nbytes)}: waits {moment(curve(nbytes), unit, curve(nbytes))}"
    chart.point(nbytes, curve(nbytes), tip, r=4.5)
    return str(chart.figure)
