"""The sliders of the precision chapter: one number's bits, a loss scale at work, updates lost."""

from math import log2

from weft.draw.precision import formats, told
from weft.draw.precision import scale as draw_precision_scale
from weft.explore.box import chosen, explored
from weft.plan.arguments import whole
from weft.plan.precision import (
    E2M1,
    FORMATS,
    Format,
    LossScale,
    bell,
    blocked,
    fates,
    in_blocks,
    known,
    least_update,
    outlier,
)
from weft.plan.units import percent

SCALED = {name: FORMATS[name] for name in ("e4m3", "e5m2")} | {"e2m1": E2M1}
WAYS = {"nearest": None, "cut": 1.0, "up": 0.0}
FATE = {
    "exact": "holds it exactly",
    "rounded": "rounds it to {became}, off by {ulps} of the spacing there, {spacing}",
    "subnormal": "has only {became} left of it, off by {ulps} of the smallest step, {spacing}",
    "zero": "makes it zero: it is below half of the smallest number, {least}",
    "overflow": "overflows and gives {became}: its largest number is {most}",
}


@explored
def bits(
    power: float = 2**-3, part: int = 33, format: str = "fp16", way: str = "nearest"
) -> tuple[str, str]:
    """The bits of (1 + part / 100) times a power of two, and what one format makes of the number.

    `way` is how it is rounded: to the nearest, by cutting bits off, or away from zero.
    """
    threshold = chosen("way", way, WAYS)
    x, one = (1 + part / 100) * power, known(format)
    became = one.round(x, threshold)
    overflowed = not one.round(x, threshold, saturate=False) <= one.max
    summary = f"{told(x)}: {format} {_told(one, x, became, overflowed)}."
    return formats.bits_svg(x, threshold=threshold), summary


def _told(format: Format, x: float, became: float, overflowed: bool) -> str:
    """What became of x, in a sentence's second half."""
    if became == x:
        fate = "exact"
    elif overflowed:
        fate = "overflow"
    elif became == 0:
        fate = "zero"
    else:
        fate = "rounded" if abs(became) >= format.min_normal else "subnormal"
    return FATE[fate].format(
        became=told(became),
        ulps=f"{abs(became - x) / format.spacing(x):.3g}",
        spacing=told(format.spacing(x)),
        least=told(format.min_subnormal),
        most=told(format.max),
    )


@explored
def gradients(
    scale: float = 1, middle: float = 2**-22, spread: int = 4, format: str = "fp16"
) -> tuple[str, str]:
    """Gradients around `middle`, times a loss scale, in a format."""
    one, numbers = known(format), bell(log2(middle), spread)
    shares = fates(one, numbers, scale)
    summary = (
        f"Times {told(scale)} in {format}: {percent(shares['zero'])} become zero, "
        f"{percent(shares['subnormal'])} lose bits as subnormals, {percent(shares['overflow'])} "
        f"overflow."
    )
    return draw_precision_scale.histogram_svg(numbers, one, scale, span=(-44, 24)), summary


@explored
def blocks(size: float = 2**14, block: int = 4096, format: str = "e4m3") -> tuple[str, str]:
    """4096 numbers around 1 and one outlier of that size, with a scale for each block of them."""
    one = chosen("format", format, SCALED)
    numbers = outlier(size)
    block = whole("block", block)
    shares = blocked(numbers, one, block)
    whose = "the whole tensor" if block >= len(numbers) else f"each block of {block}"
    summary = (
        f"One number in {len(numbers):,} is {told(size)}, the others are around 1. With a scale "
        f"for {whose} {percent(shares['zero'])} become zero in {format} and "
        f"{percent(shares['subnormal'])} lose bits as subnormals."
    )
    scaled = in_blocks(numbers, one, block)
    return draw_precision_scale.histogram_svg(scaled, one, span=(-24, 18)), summary


@explored
def walk(
    start: float = 2**16, interval: int = 20, largest: float = 32, steps: int = 120
) -> tuple[str, str]:
    """The loss scale from `start` on, where the largest gradient falls by a factor of 16.

    It falls evenly on a logarithmic axis, from `largest` on.
    """
    steps = whole("steps", steps)
    gradients = [largest * 2.0 ** (-4 * i / steps) for i in range(steps)]
    values, skipped = draw_precision_scale.walked(
        LossScale(value=float(start), growth_interval=interval), gradients
    )
    last = values[-1] * gradients[-1] / FORMATS["fp16"].max
    summary = (
        f"{sum(skipped)} of {steps} steps skipped. The scale ends at {told(values[-1])}, where the "
        f"largest gradient reaches {percent(last)} of what fp16 can hold."
    )
    return draw_precision_scale.scale_svg(values, skipped), summary


@explored
def update(weight: float = 1, smaller: int = 2**11, format: str = "fp16") -> tuple[str, str]:
    """A weight of 1.5 times a power of two, and an update so many times smaller, added."""
    one = known(format)
    x = 1.5 * weight
    delta = x / smaller
    got = one.round(one.round(x) + delta)
    least = least_update(one, x)
    arrives = (got - one.round(x)) / delta
    what = (
        f"{told(got)} comes out, {arrives:.3g} times the update" if arrives else "nothing happens"
    )
    summary = (
        f"{told(x)} + {told(delta)} in {format}: {what}. Updates below {told(least)}, a "
        f"{told(x / least)}th of the weight, are lost."
    )
    return formats.bits_svg(x + delta, [FORMATS["fp32"], one]), summary
