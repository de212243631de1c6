"""How long an all-reduce takes over the size of the data: one curve for each algorithm."""

from collections.abc import Callable, Mapping

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.collectives import crossover, seconds, through_switch
from weft.plan.hardware import Link
from weft.plan.units import binary, moment, quantity

LEAST, MOST = 2**10, 2**33  # bytes
NAMES = {
    "ring": "ring",
    "tree": "tree",
    "double_tree": "two trees",
    "in_network": "switch adds",
    "flat": "one ring, one NIC",
    "rails": "a ring for each NIC",
    "stages": "three stages",
    "Ring": "ring",
    "Tree": "tree",
    "NVLS": "switches that add",
}
Curves = Mapping[str, Callable[[float], float]]  # name of an algorithm -> seconds by bytes


def times_svg(n: int, link: Link, nbytes: int = 2**20, in_network: bool = False) -> str:
    """All-reduce by ring and trees (and in the network) on n ranks, with one size marked."""
    if n < 2:
        raise ValueError(f"n is {n}, must be at least 2: one rank alone has nothing to send")
    kinds = ["ring", "tree", "double_tree", *(["in_network"] if in_network else [])]

    def curve(kind: str) -> Callable[[float], float]:
        wire = through_switch(link) if kind == "in_network" else link
        return lambda size: seconds("all_reduce", size, n, wire, kind)

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
    words = [f"{NAMES[kind]} {moment(time, 's', time)}" for kind, time in times.items()]
    description = (
        f"Curves of time over size, flat while latency counts and rising with size after. {told}"
        f"At {binary(nbytes)}: {', '.join(words)}."
    )
    looks = {kind: line(i) for i, kind in enumerate(curves)}
    ticks = [2**k for k in range(12, 34, 4)]
    x = Axis("bytes", LEAST, MOST, binary, log=True, ticks=ticks)
    low, high = _below(min(ends)), 10 * _below(max(ends))
    y = Axis("time of one all-reduce", low, high, lambda time: quantity(time, "s"), log=True)
    keys = [Key(NAMES[kind], look) for kind, look in looks.items()]
    chart = Chart(title, description, x, y, keys)
    for kind, curve in curves.items():
        chart.curve([(size, curve(size)) for size in chart.spots()], looks[kind])
        tip = f"{NAMES[kind]}, {binary(nbytes)}: {moment(times[kind], 's', times[kind])}"
        chart.point(nbytes, times[kind], tip, r=4.5)
    return str(chart.figure)


def _below(time: float) -> float:
    """The power of ten at or below."""
    power = 1e-9
    while power * 10 <= time * (1 + 1e-9):
        power *= 10
    return power
