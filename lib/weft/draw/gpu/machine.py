"""A GPU with its memories: what each holds, how fast it is, how long a value is under way."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure
from weft.plan.gpu import (
    CAPACITIES,
    GLOBAL,
    L2_CLOCK,
    PARTITIONS,
    SHARED,
    clock,
    shared_bandwidth,
)
from weft.plan.hardware import CHIPS, LINKS
from weft.plan.units import binary, quantity

WIDE, HIGH, GAP = 460, 36, 34
SMALL = 11
HOSTS = {"a100-40": "pcie4", "a100-80": "pcie4", "h100": "pcie5", "h200": "pcie5", "b200": "pcie5"}
PALE = 0.55
REGISTER = 4  # bytes


def machine_svg(chip: str = "h100") -> str:
    """From the host down to the registers of one multiprocessor, with sizes and rates of a chip.

    Rates are the data sheet's, or, at the cache and in shared memory, of the whole chip at the
    clock at which it reaches its rate in 16 bits.
    """
    if chip not in CAPACITIES:
        raise ValueError(f"chip is {chip!r}, must be one of {', '.join(CAPACITIES)}")
    on = CHIPS[chip]
    sizes_of = {
        "host: CPU and its memory": "",
        "memory (HBM)": quantity(on.memory, "B"),
        f"L2 cache, shared by all {on.sms} multiprocessors": quantity(on.l2, "B"),
    }
    rates = _rates(chip)
    top = (HIGH + GAP) * len(sizes_of)
    figure = Figure.small(WIDE, top + 196, f"Memories of {chip}", _describe(chip, sizes_of, rates))
    for i, ((name, size), rate) in enumerate(zip(sizes_of.items(), rates, strict=True)):
        y = (HIGH + GAP) * i
        shade = svg.TRAVEL.paint(0.3 + 0.2 * i) if i else {"fill_opacity": 0.06}
        look = shade | ({"stroke": "currentColor", "stroke_opacity": 0.5} if not i else OUTLINE)
        figure.mark("rect", x=0.5, y=y + 0.5, width=WIDE - 1, height=HIGH, rx=4, **look)
        ink = {"fill": svg.INK} if i else {}
        figure.words(10, y + 23, name, font_weight="bold", **ink)
        if size:
            figure.words(WIDE - 10, y + 23, size, text_anchor="end", **ink)
        _arrow(figure, 30, y + HIGH, y + HIGH + GAP)
        figure.words(44, y + HIGH + 22, rate, font_size=SMALL)
    _multiprocessor(figure, chip, top)
    return str(figure)


def _rates(chip: str) -> list[str]:
    """What goes between the host, the memory, the cache and the multiprocessors."""
    link = LINKS[HOSTS[chip]] if chip in HOSTS else None
    at_host = f": {quantity(link.bandwidth, 'B/s')} each way" if link else ""
    speed = clock(chip)
    at_memory = quantity(CHIPS[chip].bandwidth, "B/s")
    at_cache = "all multiprocessors together"
    if chip in L2_CLOCK:
        at_memory += f"; a load's value comes after {quantity(GLOBAL / speed, 's')}"
        at_cache = f"about {quantity(L2_CLOCK[chip] * speed, 'B/s', digits=2)}, {at_cache}"
    return [f"PCIe{at_host}; launches of kernels", at_memory, at_cache]


def _arrow(figure: Figure, x: float, top: float, bottom: float) -> None:
    """A line with a head at both ends."""
    figure.line(x, top + 3, x, bottom - 3, stroke_width=1.5)
    for tip, away in ((top + 3, 5), (bottom - 3, -5)):
        ends = f"M{x - 4} {tip + away}L{x} {tip}L{x + 4} {tip + away}"
        figure.mark("path", d=ends, fill="none", stroke="currentColor", stroke_width=1.5)


def _multiprocessor(figure: Figure, chip: str, top: float) -> None:
    """The front one of a stack, with its shared memory and four partitions."""
    on, has = CHIPS[chip], CAPACITIES[chip]
    edge = {"fill": "none", "stroke": "currentColor", "stroke_opacity": 0.5}
    for back in (8, 4, 0):
        at = {"x": 0.5 + back, "y": top + 8.5 - back, "width": WIDE - 9, "height": 186, "rx": 4}
        figure.mark("rect", **at, **edge | ({"stroke_opacity": 0.25} if back else {}))
    told = f"multiprocessor (SM), 1 of {on.sms}"
    figure.words(12, top + 28, told, font_weight="bold")
    y = top + 38
    look = svg.FORWARD.paint(0.3) | OUTLINE
    figure.mark("rect", x=10.5, y=y, width=WIDE - 29, height=HIGH, rx=3, **look)
    with figure.group(fill=svg.INK):
        figure.words(18, y + 15, "shared memory and L1 cache", font_weight="bold")
        figure.words(18, y + 30, _shared_rate(chip), font_size=SMALL)
        figure.words(WIDE - 28, y + 15, binary(on.shared), text_anchor="end")
    step = (WIDE - 19) / PARTITIONS
    file = binary(has.registers // PARTITIONS * REGISTER)
    cores = f"{has.cores // PARTITIONS} CUDA cores"
    for i in range(PARTITIONS):
        x = 10.5 + step * i
        wide = step - 8
        parts = (
            ("scheduler", svg.WEIGHT_GRADIENT.paint(PALE), 20),
            (f"registers {file}", svg.FORWARD.paint(), 32),
            (cores, {"fill_opacity": 0.12}, 20),
            ("tensor core", svg.INPUT_GRADIENT.paint(PALE), 20),
        )
        at = y + HIGH + 10
        for name, paint, high in parts:
            figure.mark("rect", x=x, y=at, width=wide, height=high, **paint, **OUTLINE)
            ink = {} if name == cores else {"fill": svg.INK}
            look = {"text_anchor": "middle", "font_size": SMALL, **ink}
            figure.words(x + wide / 2, at + high / 2 + 4, name, **look)
            at += high + 3


def _shared_rate(chip: str) -> str:
    rate = quantity(shared_bandwidth(chip), "B/s")
    latency = f"; a value after {quantity(SHARED / clock(chip), 's')}" if chip in L2_CLOCK else ""
    return f"{rate}, all {CHIPS[chip].sms} together{latency}"


def _describe(chip: str, sizes_of: dict[str, str], rates: list[str]) -> str:
    told = [f"Boxes below each other, the memories of {chip} from far to near."]
    for (name, size), rate in zip(sizes_of.items(), rates, strict=True):
        told.append(f"{name}{f', {size}' if size else ''}; below it {rate}.")
    has = CAPACITIES[chip]
    told.append(
        f"Each multiprocessor has {binary(has.shared)} of shared memory, {_shared_rate(chip)}, and "
        f"{PARTITIONS} partitions with a scheduler, "
        f"{binary(has.registers // PARTITIONS * REGISTER)} of registers, "
        f"{has.cores // PARTITIONS} CUDA cores and a tensor core."
    )
    return " ".join(told)
