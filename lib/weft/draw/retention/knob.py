"""A norm takes any factor out of its input, until its epsilon is as large as the input's square."""

from math import log10, sqrt

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.arguments import amount, positive
from weft.plan.units import power

EPSILONS = (1e-6, 1e-5)
SMALLEST, LARGEST = -5, 1  # powers of ten on the x axis
DOTS = (1e-3, 1e-4)  # a size, and what a division by 10 makes of it


def normed(size: float, eps: float) -> float:
    """The size of what RMSNorm gives for an input of some size, both a root of a mean square.

    >>> normed(100.0, 1e-6) > 0.999999, round(normed(1e-3, 1e-6), 3)
    (True, 0.707)
    """
    (size,) = positive(size=size)
    return size / sqrt(size * size + amount("eps", eps))


def knob_svg() -> str:
    """The size after the norm over the size before it, for two epsilons; dots on the first's."""
    looks = {eps: line(i, 2.5 - i / 2) for i, eps in enumerate(EPSILONS)}
    names = {eps: f"epsilon {_tens(eps)}" for eps in looks}
    told = "; ".join(
        f"with {names[eps]} an input of 0.001 gives {normed(1e-3, eps):.2f}" for eps in looks
    )
    chart = Chart(
        "A norm with an epsilon",
        f"Curves that are level at 1 for large inputs and fall to 0 for small ones: {told}.",
        Axis("size before the norm", 10.0**SMALLEST, 10.0**LARGEST, _tens, log=True,
             ticks=[10.0**i for i in range(SMALLEST, LARGEST + 1)]),
        Axis("size after the norm", 0, 1, ticks=(0, 0.25, 0.5, 0.75, 1)),
        [Key(names[eps], look) for eps, look in looks.items()],
    )  # fmt: skip
    for eps, look in looks.items():
        chart.curve([(size, normed(size, eps)) for size in chart.spots(96)], look)
        for size in DOTS if eps == EPSILONS[0] else ():
            after = normed(size, eps)
            chart.point(size, after, f"{names[eps]}: {_tens(size)} gives {after:.2f}")
    return str(chart.figure)


def _tens(value: float) -> str:
    exponent = round(log10(value))
    return {0: "1", 1: "10"}.get(exponent, power(10, exponent))
