"""How long an all-reduce takes over the size of the data: one curve for each algorithm."""

from collections.abc import Callable, Mapping

from weft.draw.figure import Figure, Log, measure, number
from weft.plan.collectives import crossover, seconds
from weft.plan.hardware import Link
from weft.plan.units import binary, moment

WIDE, HIGH = 480, 330
LEAST, MOST = 2**10, 2**33  # bytes
LOOKS = {
    "ring": "none",
    "tree": "7 3",
    "double_tree": "10 3 2 3",
    "in_network": "2 3",
    "flat": "none",
    "rails": "7 3",
}
NAMES = {
    "ring": "ring",
    "tree": "tree",
    "double_tree": "two trees",
    "in_network": "switch adds",
    "flat": "one ring through all",
    "rails": "nodes, then rails",
}
Curves = Mapping[str, Callable[[float], float]]  # name of an algorithm -> seconds by bytes


def times_svg(n: int, link: Link, nbytes: int = 2**20, in_network: bool = False) -> str:
    """All-reduce by ring and trees (and in the network) on n ranks, with one size marked."""
    if n < 2:
        raise ValueError(f"n is {n}, must be at least 2: one rank alone has nothing to send")
    kinds = ["ring", "tree", "double_tree", *(["in_network"] if in_network else [])]

    def curve(kind: str) -> Callable[[float], float]:
        return lambda size: seconds("all_reduce", size, n, link, kind)

    title = f"All-reduce of {n} ranks on {link.name}: seconds over bytes"
    at = crossover(n, link)
    meet = f"Ring and tree meet at {binary(at)}. " if LEAST < at < MOST else ""
    return curves_svg({kind: curve(kind) for kind in kinds}, nbytes, title, meet)


def curves_svg(curves: Curves, nbytes: int, title: str, told: str = "") -> str:
    """Times over sizes, both in powers of ten and two; a dot on each curve at `nbytes`."""
    if not LEAST <= nbytes <= MOST:
        raise ValueError(f"nbytes is {nbytes!r}, must be from {LEAST} to {MOST}")
    times = {kind: curve(nbytes) for kind, curve in curves.items()}
    ends = [curve(size) for curve in curves.values() for size in (LEAST, MOST)]
    x = Log(LEAST, MOST, 58, WIDE - 16)
    y = Log(_below(min(ends)), 10 * _below(max(ends)), HIGH - 44, 56)
    words = [f"{NAMES[kind]} {moment(time, 's', time)}" for kind, time in times.items()]
    description = (
        f"Curves of time over size, flat while latency counts and rising with size after. {told}"
        f"At {binary(nbytes)}: {', '.join(words)}."
    )
    figure = Figure(WIDE, HIGH, title, description, least=WIDE * 0.73, largest=WIDE * 1.25)
    _axes(figure, x, y)
    left = 0.0
    for kind in curves:
        look = {"stroke_width": 2, "stroke_dasharray": LOOKS[kind]}
        figure.line(left, 10, left + 30, 10, **look)
        figure.words(left + 36, 14, NAMES[kind])
        left += 36 + measure(NAMES[kind]) + 16
    for kind, curve in curves.items():
        sizes = [LEAST * (MOST / LEAST) ** (i / 60) for i in range(61)]
        path = "L".join(f"{number(x(size))} {number(y(curve(size)))}" for size in sizes)
        dash = LOOKS[kind]
        look = {"stroke": "currentColor", "stroke_width": 2, "stroke_dasharray": dash}
        figure.mark("path", d=f"M{path}", fill="none", **look)
        tip = f"{NAMES[kind]}, {binary(nbytes)}: {moment(times[kind], 's', times[kind])}"
        figure.mark("circle", cx=x(nbytes), cy=y(times[kind]), r=4.5, tip=tip)
    return str(figure)


def _below(time: float) -> float:
    """The power of ten at or below."""
    power = 1e-9
    while power * 10 <= time * (1 + 1e-9):
        power *= 10
    return power


def _axes(figure: Figure, x: Log, y: Log) -> None:
    figure.words(0, y.stop - 16, "seconds for one all-reduce")
    for tick in y.ticks((1,)):
        figure.line(x.start, y(tick), x.stop, y(tick), stroke_opacity=0.15)
        label = moment(tick, "s", tick)
        figure.words(x.start - 6, y(tick) + 4, label, text_anchor="end", font_size=11)
    with figure.group(text_anchor="middle", font_size=11):
        for tick in (2**k for k in range(12, 34, 4)):
            figure.line(x(tick), y.start, x(tick), y.start + 4)
            figure.words(x(tick), y.start + 17, binary(tick))
    figure.line(x.start, y.start, x.stop, y.start)
    figure.words((x.start + x.stop) / 2, y.start + 36, "bytes", text_anchor="middle")
