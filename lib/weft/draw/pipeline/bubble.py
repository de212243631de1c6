"""The bubble over the number of microbatches: the closed form as curves, simulations as points."""

from math import floor, log10

from weft.draw.chart import RING, Axis, Chart, Key, line
from weft.plan.pipeline import bubble, interleaved, one_f_one_b
from weft.plan.simulate import simulate
from weft.plan.units import percent

CURVES = (1, 2, 4)


def bubble_svg(p: int = 8, m: int = 32, v: int = 1, most: int = 64) -> str:
    """Idle over total time against m, for p ranks: one curve for each v, the choice (m, v) ringed.

    Curves are the closed form of 1F1B (v = 1) and of interleaved 1F1B; every point on them is a
    simulation. Interleaving needs m in multiples of p, so its curves begin at p. Both axes are
    logarithmic: doubling v then moves a curve as far as doubling m does. p is at least 2, since
    one rank alone has no bubble.
    """
    if p < 2:
        raise ValueError(f"p is {p}, must be at least 2: one rank alone never waits")
    share = simulated(p, m, v)
    most = max(most, m, 2 * p)
    curves = sorted({*CURVES, v})
    least = 10 ** floor(log10(bubble.fraction(p, most, max(curves))))
    looks = {each: line(i, 2.5 if each == v else 1.25) for i, each in enumerate(curves)}
    keys = [Key("v = 1 (1F1B)" if i == 1 else f"v = {i}", look) for i, look in looks.items()]
    choice = Key(f"m = {m}, v = {v}: {percent(share)}", RING, "ring")
    doubled = [2**i for i in range(most.bit_length())]
    chart = Chart(
        f"The bubble of {p} ranks over the number of microbatches",
        _describe(p, m, v, share, curves, most),
        Axis("microbatches m", 1, most, str, log=True, ticks=doubled),
        Axis("idle share of the step", least, 1, lambda share: percent(share, 4), log=True),
        [*keys, Key("simulated", {}, "point"), choice],
    )
    for each, look in looks.items():
        _curve(chart, p, each, look)
    chart.ring(m, share)
    return str(chart.figure)


def simulated(p: int, m: int, v: int) -> float:
    """The idle share of one simulated step of 1F1B, or of interleaved 1F1B if v is above 1."""
    plan = one_f_one_b(p, m) if v == 1 else interleaved(p, m, v)
    return simulate(plan).bubble


def points(p: int, v: int, most: int) -> tuple[int, ...]:
    """The m at which a curve is checked by simulation: p times powers of two, and below for v = 1.

    >>> points(p=3, v=1, most=20), points(p=3, v=2, most=20)
    ((1, 2, 3, 6, 12), (3, 6, 12))
    """
    doubled = [p * 2**i for i in range(most.bit_length()) if p * 2**i <= most]
    fewer = [2**i for i in range(p.bit_length()) if 2**i < p] if v == 1 else []
    return (*fewer, *doubled)


def _curve(chart: Chart, p: int, v: int, look: dict) -> None:
    """The closed form from the least m on that there is, and simulations on it."""
    first = 1 if v == 1 else p
    stretch = [first, *(m for m in chart.spots() if m > first)]
    chart.curve([(m, bubble.fraction(p, m, v)) for m in stretch], look)
    for m in points(p, v, round(chart.x.high)):
        share = simulated(p, m, v)
        chart.point(m, share, f"m = {m}, v = {v}: simulated {percent(share)}")


def _describe(p: int, m: int, v: int, share: float, curves: list[int], most: int) -> str:
    told = [
        "Falling curves of the closed form (p - 1) / (v m + p - 1), the idle share of a step, over "
        f"m from 1 to {most}, with a point on them for each simulation."
    ]
    for each in curves:
        ends = points(p, each, most)[0], points(p, each, most)[-1]
        values = " to ".join(f"{percent(bubble.fraction(p, n, each))} at m = {n}" for n in ends)
        told.append(f"v = {each}: from {values}.")
    told.append(f"Ringed: m = {m}, v = {v}, where {percent(share)} of the time is idle.")
    return " ".join(told)
