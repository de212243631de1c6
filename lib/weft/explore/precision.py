"""The sliders of the precision chapter: one number's bits, a loss scale at work, updates lost."""

from weft.draw.precision import formats, told
from weft.draw.precision import scale as draw_precision_scale
from weft.explore.box import explored
from weft.plan.arguments import whole
from weft.plan.precision import FORMATS, Format, LossScale, bell, fates, known, least_update
from weft.plan.units import percent

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
    power: int = -3, part: int = 33, format: str = "fp16", way: str = "nearest"
) -> tuple[str, str]:
    """The bits of (1 + part / 100) 2^power, and what one format makes of the number.

    `way` is how it is rounded: to the nearest, by cutting bits off, or away from zero.
    """
    if way not in WAYS:
        raise ValueError(f"way is {way!r}, must be one of {', '.join(WAYS)}")
    x, one = (1 + part / 100) * 2.0**power, known(format)
    became = one.round(x, WAYS[way])
    overflowed = not one.round(x, WAYS[way], saturate=False) <= one.max
    summary = f"{told(x)}: {format} {_told(one, x, became, overflowed)}."
    return formats.bits_svg(x, threshold=WAYS[way]), summary


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
    scale: int = 0, middle: int = -22, spread: int = 4, format: str = "fp16"
) -> tuple[str, str]:
    """Gradients around 2^middle, times a loss scale of 2^scale, in a format."""
    one, numbers = known(format), bell(middle, spread)
    shares = fates(one, numbers, 2.0**scale)
    summary = (
        f"Times {told(2.0**scale)} in {format}: {percent(shares['zero'])} become zero, "
        f"{percent(shares['subnormal'])} lose bits as subnormals, {percent(shares['overflow'])} "
        f"overflow."
    )
    return draw_precision_scale.histogram_svg(numbers, one, 2.0**scale, span=(-44, 24)), summary


@explored
def walk(
    start: int = 16, interval: int = 20, largest: int = 5, steps: int = 120
) -> tuple[str, str]:
    """The loss scale from 2^start on, where the largest gradient falls from 2^largest by 16.

    It falls evenly over the steps, to 2^(largest - 4).
    """
    steps = whole("steps", steps)
    gradients = [2.0 ** (largest - 4 * i / steps) for i in range(steps)]
    values, skipped = draw_precision_scale.walked(
        LossScale(value=2.0**start, growth_interval=interval), gradients
    )
    last = values[-1] * gradients[-1] / FORMATS["fp16"].max
    summary = (
        f"{sum(skipped)} of {steps} steps skipped. The scale ends at {told(values[-1])}, where the "
        f"largest gradient reaches {percent(last)} of what fp16 can hold."
    )
    return draw_precision_scale.scale_svg(values, skipped), summary


@explored
def update(weight: int = 0, power: int = 11, format: str = "fp16") -> tuple[str, str]:
    """A weight of 1.5 times 2^weight and an update 2^power times smaller than it, added."""
    one = known(format)
    x = 1.5 * 2.0**weight
    delta = x / 2.0**power
    got = one.round(one.round(x) + delta)
    least = least_update(one, x)
    what = "nothing happens" if got == one.round(x) else f"{told(got)} comes out"
    summary = (
        f"{told(x)} + {told(delta)} in {format}: {what}. Updates below {told(least)}, a "
        f"{told(x / least)}th of the weight, are lost."
    )
    return formats.bits_svg(x + delta, [FORMATS["fp32"], one]), summary
