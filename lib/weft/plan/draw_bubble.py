"""The bubble over the number of microbatches: the closed form as curves, simulations as points."""

from math import log2

from weft.plan import bubble, svg
from weft.plan.pipeline import interleaved, one_f_one_b
from weft.plan.simulate import simulate
from weft.plan.svg import Figure, Scale, measure, number, percent

WIDE, HIGH = 480, 330
CURVES = (1, 2, 4)
DASHES = ("none", "7 3", "2 3", "7 3 2 3")
RING = {
    "fill": "none",
    "stroke": svg.STUCK.hexadecimal,
    "stroke_width": 3,
    "style": f"stroke:var(--{svg.STUCK.variable},{svg.STUCK.hexadecimal})",
}


def bubble_svg(p: int, m: int = 8, v: int = 1, most: int = 64) -> str:
    """Idle over total time against m, for p ranks: one curve for each v, the choice (m, v) ringed.

    Curves are the closed form of 1F1B (v = 1) and of interleaved 1F1B; every point on them is a
    simulation. Interleaving needs m in multiples of p, so its curves begin at p.
    """
    share = simulated(p, m, v)
    most = max(most, m, 2 * p)
    x = Scale(0, log2(most), 48, WIDE - 16)
    y = Scale(0, max(0.1, bubble.fraction(p, 1)), HIGH - 44, 72)
    curves = sorted({*CURVES, v})
    figure = Figure(
        WIDE,
        HIGH,
        f"The bubble of {p} ranks over the number of microbatches",
        _describe(p, m, v, share, curves, most),
        least=WIDE * 0.73,
        largest=WIDE * 1.25,
    )
    _axes(figure, x, y, most)
    _legend(figure, curves, v, f"m = {m}, v = {v}: {percent(share)}")
    for i, each in enumerate(curves):
        _curve(figure, p, each, most, x, y, DASHES[i % len(DASHES)], chosen=each == v)
    at = x(log2(m)), y(share)
    figure.mark("circle", cx=at[0], cy=at[1], r=8, **RING)
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


def _curve(
    figure: Figure, p: int, v: int, most: int, x: Scale, y: Scale, dash: str, chosen: bool
) -> None:
    first = 0.0 if v == 1 else log2(p)
    steps = 48
    stretch = [first + (x.high - first) * i / steps for i in range(steps + 1)]
    path = "L".join(
        f"{number(x(each))} {number(y(bubble.fraction(p, 2**each, v)))}" for each in stretch
    )
    look = {"stroke_width": 2.5 if chosen else 1.25, "stroke_dasharray": dash}
    figure.mark("path", d=f"M{path}", fill="none", stroke="currentColor", **look)
    for m in points(p, v, most):
        share = simulated(p, m, v)
        tip = f"m = {m}, v = {v}: simulated {percent(share)}"
        figure.mark("circle", cx=x(log2(m)), cy=y(share), r=3.5, tip=tip)


def _axes(figure: Figure, x: Scale, y: Scale, most: int) -> None:
    """m doubles from tick to tick; the idle share in percent, with faint lines across."""
    figure.words(0, y.stop - 14, "idle share of the step")
    for tick in y.ticks(most=6):
        figure.line(x.start, y(tick), x.stop, y(tick), stroke_opacity=0.15)
        label = f"{100 * tick:.0f} %"
        figure.words(x.start - 6, y(tick) + 4, label, text_anchor="end", font_size=11)
    with figure.group(text_anchor="middle", font_size=11):
        for tick in (2**i for i in range(most.bit_length()) if 2**i <= most):
            figure.line(x(log2(tick)), y(0), x(log2(tick)), y(0) + 4)
            figure.words(x(log2(tick)), y(0) + 17, str(tick))
    figure.line(x.start, y(0), x.stop, y(0))
    middle = (x.start + x.stop) / 2
    figure.words(middle, y(0) + 36, "microbatches m", text_anchor="middle")


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
