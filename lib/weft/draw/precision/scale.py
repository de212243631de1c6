"""Gradients against what a format holds, and the loss scale as it looks for the best place."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import floor, log2

from weft.draw.figure import OUTLINE, Colour, Figure, Scale, legend, number
from weft.draw.precision.formats import EXPONENT, LOST, told
from weft.plan.precision import Format, LossScale, fates
from weft.plan.units import percent, power

WIDE, HIGH = 480, 130
BAR = Colour("weft-magnitudes", "#999933")
SUBNORMAL, HELD = EXPONENT.paint(white=0.65), EXPONENT.paint(white=0.25)
BEYOND, FAINT = LOST.paint(white=0.4), {"fill_opacity": 0.55}


def histogram_svg(
    numbers: Sequence[float] | Mapping[float, int],
    format: Format,
    scale: float = 1.0,
    span: tuple[int, int] | None = None,
) -> str:
    """How many numbers there are between two powers of two, over what the format does with them.

    Numbers are multiplied by `scale`, so they move while the format stays. `span` are the least
    and the largest power that the axis reaches.
    """
    pairs = numbers.items() if isinstance(numbers, Mapping) else ((x, 1) for x in numbers)
    powers: Counter[int] = Counter()
    for value, count in pairs:
        if value:
            powers[floor(log2(abs(value * scale)))] += count
    shares = fates(format, numbers, scale)
    ends = floor(log2(format.min_subnormal)), floor(log2(format.max)) + 1
    low = min(ends[0] - 2, *powers) if span is None else span[0]
    high = max(ends[1] + 2, 1 + max(powers)) if span is None else span[1]
    x, top = Scale(low, high, 4, WIDE - 4), 26
    y = Scale(0, max(powers.values()), top + HIGH, top + 6)
    figure = Figure.small(
        WIDE,
        top + HIGH + 40,
        f"Numbers times {told(scale)} in {format.name}",
        _describe(powers, format, scale, shares),
        largest=1.3,
    )
    looks = {"normal": HELD, "subnormal": SUBNORMAL, "nothing there": BEYOND}
    legend(figure, [(name, look | OUTLINE | FAINT) for name, look in looks.items()])
    _ground(figure, format, x, top)
    inside = {power: count for power, count in powers.items() if low <= power < high}
    boxes = [(x(p) + 0.5, y(n), x(p + 1) - x(p) - 1, y(0) - y(n)) for p, n in inside.items()]
    figure.boxes(boxes, **BAR.paint())
    _axis(figure, x, top + HIGH)
    return str(figure)


def _ground(figure: Figure, format: Format, x: Scale, top: float) -> None:
    """What the format has at each place of the axis, as colours behind the bars."""
    edges = [format.min_subnormal / 2, format.min_normal, 2.0 ** (floor(log2(format.max)) + 1)]
    places = [min(max(log2(edge), x.low), x.high) for edge in edges]
    stops = [x.low, *places, x.high]
    looks = [BEYOND, SUBNORMAL, HELD, BEYOND]
    for start, stop, look in zip(stops, stops[1:], looks, strict=False):
        if stop > start:
            wide = x(stop) - x(start)
            figure.mark("rect", x=x(start), y=top, width=wide, height=HIGH, **FAINT, **look)


def _axis(figure: Figure, x: Scale, bottom: float) -> None:
    figure.line(x.start, bottom, x.stop, bottom, stroke_opacity=0.5)
    with figure.group(text_anchor="middle", font_size=11):
        for tick in x.ticks(10):
            if x.start + 10 < x(tick) < x.stop - 10:
                figure.words(x(tick), bottom + 15, power(2, tick))
        figure.words((x.start + x.stop) / 2, bottom + 31, "magnitude")


def _describe(powers: Counter, format: Format, scale: float, shares: Mapping[str, float]) -> str:
    at = max(powers, key=lambda p: (powers[p], p))
    return (
        f"A histogram of {sum(powers.values())} magnitudes times {told(scale)} by power of two, "
        f"highest at {at}, over the range of {format.name}: normal from "
        f"{told(format.min_normal)} to {told(format.max)}, subnormal from "
        f"{told(format.min_subnormal)}. {percent(shares['zero'])} become zero, "
        f"{percent(shares['subnormal'])} lose bits as subnormals, "
        f"{percent(shares['overflow'])} overflow."
    )


# --- the scale over time --------------------------------------------------------------------------


def scale_svg(values: Sequence[float], skipped: Sequence[bool]) -> str:
    """The loss scale at each step, logarithmic, with a mark below every step that was skipped."""
    if not values or len(values) != len(skipped):
        raise ValueError(
            f"skipped has {len(skipped)} steps for {len(values)} of values, must have as many, "
            "at least one"
        )
    powers = [log2(value) for value in values]
    top, bottom = 22, 22 + HIGH
    x = Scale(0, len(values), 52, WIDE - 6)
    y = Scale(floor(min(powers)) - 1, floor(max(powers)) + 1, bottom, top)
    figure = Figure.small(
        WIDE,
        bottom + 62,
        f"The loss scale over {len(values)} steps",
        f"A staircase from {told(values[0])} to {told(values[-1])}, between {told(min(values))} "
        f"and {told(max(values))}; {sum(skipped)} of {len(values)} steps are skipped.",
        largest=1.3,
    )
    figure.words(0, 12, "loss scale", font_size=11)
    with figure.group(text_anchor="end"):
        for tick in y.ticks(5):
            figure.line(x.start, y(tick), x.stop, y(tick), stroke_opacity=0.15)
            figure.words(x.start - 5, y(tick) + 4, power(2, tick))
    outline = f"M{number(x(0))} {number(y(powers[0]))}"
    for i, at in enumerate(powers):
        outline += f"V{number(y(at))}H{number(x(i + 1))}"
    figure.mark("path", d=outline, fill="none", stroke="currentColor", stroke_width=2)
    wide = x(1) - x(0)
    boxes = [(x(i), bottom + 14, wide, 10) for i, skip in enumerate(skipped) if skip]
    figure.boxes(boxes, **LOST.paint(), stroke=OUTLINE["stroke"], stroke_width=0.5)
    figure.words(0, bottom + 23, "skipped", font_size=11)
    with figure.group(text_anchor="middle", font_size=11):
        for tick in x.ticks(8):
            if x(tick) < x.stop - 8:
                figure.words(x(tick), bottom + 41, str(tick))
        figure.words((x.start + x.stop) / 2, bottom + 57, "step")
    return str(figure)


def walked(start: LossScale, largest: Sequence[float]) -> tuple[list[float], list[bool]]:
    """The scale at each step and which are skipped, for the largest gradient of each."""
    skipped = start.against(largest)
    after = start.walk(skipped)
    return [one.value for one in (start, *after[:-1])], skipped
