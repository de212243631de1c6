"""The bubble over the number of microbatches: the closed form as curves, simulations as points."""

from math import floor, log10

from weft.draw import figure as svg
from weft.draw.figure import Figure, Log, measure, number
from weft.plan.pipeline import bubble, interleaved, one_f_one_b
from weft.plan.simulate import simulate
from weft.plan.units import amount, percent

WIDE, HIGH = 480, 330
CURVES = (1, 2, 4)
DASHES = ("none", "7 3", "2 3", "7 3 2 3")
RING = {
    "fill": "none",
    "stroke": svg.STUCK.hexadecimal,
    "stroke_width": 3,
    "style": f"stroke:var(--{svg.STUCK.variable},{svg.STUCK.hexadecimal})",
}


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
    x = Log(1, most, 48, WIDE - 16)
    y = Log(least, 1, HIGH - 44, 72)
    figure = Figure(
        WIDE,
        HIGH,
        f"The bubble of {p} ranks over the number of microbatches",
        _describe(p, m, v, share, curves, most),
        least=WIDE * 0.73,
        largest=WIDE * 1.25,
    )
    _axes(figure, x, y)
    _legend(figure, curves, v, f"m = {m}, v = {v}: {percent(share)}")
    for i, each in enumerate(curves):
        _curve(figure, p, each, x, y, DASHES[i % len(DASHES)], chosen=each == v)
    figure.mark("circle", cx=x(m), cy=y(share), r=8, **RING)
    return str(figure)


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


def _curve(figure: Figure, p: int, v: int, x: Log, y: Log, dash: str, chosen: bool) -> None:
    first = 1 if v == 1 else p
    steps = 48
    stretch = [first * (x.high / first) ** (i / steps) for i in range(steps + 1)]
    path = "L".join(f"{number(x(m))} {number(y(bubble.fraction(p, m, v)))}" for m in stretch)
    look = {"stroke_width": 2.5 if chosen else 1.25, "stroke_dasharray": dash}
    figure.mark("path", d=f"M{path}", fill="none", stroke="currentColor", **look)
    for m in points(p, v, round(x.high)):
        share = simulated(p, m, v)
        tip = f"m = {m}, v = {v}: simulated {percent(share)}"
        figure.mark("circle", cx=x(m), cy=y(share), r=3.5, tip=tip)


def _axes(figure: Figure, x: Log, y: Log) -> None:
    """m doubles from tick to tick; the idle share goes by ones, twos and fives across."""
    figure.words(0, y.stop - 14, "idle share of the step")
    for tick in y.ticks((1, 2, 5)):
        figure.line(x.start, y(tick), x.stop, y(tick), stroke_opacity=0.15)
        label = f"{amount(100 * tick)} %"
        figure.words(x.start - 6, y(tick) + 4, label, text_anchor="end", font_size=11)
    with figure.group(text_anchor="middle", font_size=11):
        for tick in (2**i for i in range(round(x.high).bit_length())):
            figure.line(x(tick), y.start, x(tick), y.start + 4)
            figure.words(x(tick), y.start + 17, str(tick))
    figure.line(x.start, y.start, x.stop, y.start)
    middle = (x.start + x.stop) / 2
    figure.words(middle, y.start + 36, "microbatches m", text_anchor="middle")


def _legend(figure: Figure, curves: list[int], chosen: int, choice: str) -> None:
    """Two lines above the plot, which the curves of any p leave free."""
    left = 0.0
    for i, v in enumerate(curves):
        look = {"stroke_width": 2.5 if v == chosen else 1.25, "stroke_dasharray": DASHES[i]}
        figure.line(left, 10, left + 30, 10, **look)
        name = "v = 1 (1F1B)" if v == 1 else f"v = {v}"
        figure.words(left + 36, 14, name)
        left += 36 + measure(name) + 16
    figure.mark("circle", cx=8, cy=30, r=3.5)
    figure.words(22, 34, "simulated")
    figure.mark("circle", cx=116, cy=30, r=7, **RING)
    figure.words(130, 34, choice, font_weight="bold")


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
