"""Layouts that BigScience timed before BLOOM's training, beside what the plan says of them."""

from collections.abc import Sequence

from weft.draw import figure as svg
from weft.draw.chart import RING, Axis, Chart, Key
from weft.plan.composing import Compared, compared

HUES = {8: svg.FORWARD, 4: svg.INPUT_GRADIENT, 2: svg.WEIGHT_GRADIENT}
LAYERS, HEADS, BATCH = 72, 64, 2048  # of most of its trials
EDGE = {"stroke": "currentColor", "stroke_width": 1}


def tried() -> list[Compared]:
    """The trials of one shape, the fastest first, those of a smaller batch drawn out to 2,048."""
    rows = [one for one in compared("bloom fp16")
            if (one.step.shape.layers, one.step.shape.heads) == (LAYERS, HEADS)]  # fmt: skip
    return sorted(rows, key=took)


def took(one: Compared) -> float:
    """Measured seconds for 2,048 sequences."""
    return one.step.seconds * BATCH / one.step.batch


def said(one: Compared) -> float:
    """Predicted seconds for 2,048 sequences."""
    return one.estimate.seconds * BATCH / one.step.batch


def agreement() -> float:
    """Spearman's rank correlation of predicted and measured seconds."""
    rows = tried()
    theirs, ours = _ranks([took(one) for one in rows]), _ranks([said(one) for one in rows])
    n = len(rows)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(theirs, ours, strict=True)) / (n**3 - n)


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(values)
    return [order.index(value) for value in values]


def tried_svg() -> str:
    """A point for each layout: measured seconds to the right, predicted ones upwards."""
    rows = tried()
    spots = [value for one in rows for value in (took(one), said(one))]
    low, high = 10 * (min(spots) // 10), 10 * (max(spots) // 10 + 1)
    keys = [Key(f"t = {t}", {**hue.paint(), **EDGE}, "point") for t, hue in HUES.items()]
    equal = EDGE | {"stroke_dasharray": "4 3"}
    chart = Chart(
        "Predicted and measured steps of BLOOM's trial layouts", _told(rows),
        Axis("measured, s", low, high), Axis("predicted, s", low, high),
        [*keys, Key("equal", equal), Key("BLOOM's", RING, "ring")], high=270,
    )  # fmt: skip
    chart.curve([(low, low), (high, high)], equal)
    for one in rows:
        tip = f"{one.step.layout}: measured {took(one):.0f} s, predicted {said(one):.0f} s"
        look = HUES[one.step.layout.t].paint() | EDGE
        at = {"cx": chart.x(took(one)), "cy": chart.y(said(one))}
        chart.figure.mark("circle", **at, r=4.5, **look, tip=tip)
    chart.ring(took(rows[0]), said(rows[0]))
    return str(chart.figure)


def _told(rows: Sequence[Compared]) -> str:
    told = "; ".join(
        f"t {one.step.layout.t}, p {one.step.layout.p}, d {one.step.layout.d}, microbatch "
        f"{one.step.layout.microbatch}: {took(one):.0f} and {said(one):.0f}" for one in rows
    )  # fmt: skip
    return f"Points about a diagonal. Measured and predicted seconds: {told}."
