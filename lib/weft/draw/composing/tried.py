"""Layouts that were timed on a real machine, beside what the plan says of them."""

from weft.draw import figure as svg
from weft.draw.chart import Axis, Chart, Key
from weft.draw.figure import INPUT_GRADIENT, WEIGHT_GRADIENT
from weft.plan.composing import CLUSTERS, Estimate, estimate
from weft.plan.composing.tried import TRIED, Tried, shape

HUES = {8: svg.FORWARD, 4: INPUT_GRADIENT, 2: WEIGHT_GRADIENT}


def predicted(one: Tried) -> Estimate:
    """What the plan says of a layout that BigScience timed on Jean Zay."""
    return estimate(shape(), one.layout, one.batch, CLUSTERS["jean-zay"].of(one.layout.devices))


def errors() -> list[float]:
    """Predicted over measured, less one, for each layout that ran."""
    return [predicted(one).seconds / one.seconds - 1 for one in TRIED if one.seconds]


def agreement() -> float:
    """Spearman's rank correlation of predicted and measured seconds, where layouts ran."""
    ran = [one for one in TRIED if one.seconds]
    said = _ranks([per_sequence(one, predicted(one).seconds) for one in ran])
    took = _ranks([per_sequence(one, one.seconds) for one in ran])
    n = len(ran)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(said, took, strict=True)) / (n**3 - n)


def _ranks(values: list[float]) -> list[int]:
    order = sorted(values)
    return [order.index(value) for value in values]


def per_sequence(one: Tried, seconds: float) -> float:
    """Seconds for 2,048 sequences: a few were timed with fewer, whose steps are shorter."""
    return seconds * 2048 / one.batch


def tried_svg() -> str:
    """A point for each layout: measured seconds to the right, predicted ones upwards."""
    ran = [(one, predicted(one).seconds) for one in TRIED if one.seconds]
    spots = [(per_sequence(one, one.seconds), per_sequence(one, said), one) for one, said in ran]
    low = 10 * (min(min(x, y) for x, y, _ in spots) // 10)
    high = 10 * (max(max(x, y) for x, y, _ in spots) // 10 + 1)
    look = {"stroke": "currentColor", "stroke_width": 1}
    keys = [Key(f"t = {t}", {**hue.paint(), **look}, "point") for t, hue in HUES.items()]
    equal = {"stroke": "currentColor", "stroke_width": 1, "stroke_dasharray": "4 3"}
    chart = Chart(
        "Predicted and measured steps of BLOOM's trial layouts", _told(spots),
        Axis("measured, s", low, high), Axis("predicted, s", low, high),
        [*keys, Key("equal", equal)], high=270,
    )  # fmt: skip
    chart.curve([(low, low), (high, high)], equal)
    for x, y, one in spots:
        tip = f"{one.layout}: measured {x:.0f} s, predicted {y:.0f} s"
        chart.figure.mark("circle", cx=chart.x(x), cy=chart.y(y), r=4.5,
                          **HUES[one.layout.t].paint(), **look, tip=tip)  # fmt: skip
    return str(chart.figure)


def _told(spots) -> str:
    said = "; ".join(
        f"t {one.layout.t}, p {one.layout.p}, d {one.layout.d}, microbatch "
        f"{one.layout.microbatch}: {x:.0f} and {y:.0f}"
        for x, y, one in sorted(spots, key=lambda s: s[0])
    )
    return f"Points near or below a diagonal. Measured and predicted seconds: {said}."
