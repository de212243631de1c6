"""Numbers as pictures: the bits of one in each format, and where the numbers of a format lie.

Sign, exponent and fraction have one colour each, here and in every picture of the chapter.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite, log2

from weft.draw.figure import INK, OUTLINE, Colour, Figure, Scale, legend, measure, number
from weft.plan.precision import FORMATS, Format
from weft.plan.units import amount, percent

WIDE, CELL, ROW = 480, 13, 44
SIGN = Colour("weft-sign", "#EE8866")
EXPONENT = Colour("weft-exponent", "#77AADD")
FRACTION = Colour("weft-fraction", "#EEDD88")
LOST = Colour("weft-lost", "#FFAABB")
ALL = tuple(FORMATS.values())
KEYS = [
    ("sign", SIGN.paint() | OUTLINE),
    ("exponent", EXPONENT.paint() | OUTLINE),
    ("fraction", FRACTION.paint() | OUTLINE),
]


def told(x: float) -> str:
    """A number in six digits.

    >>> told(1 / 3), told(2.0**-24), told(65504.0), told(float("inf"))
    ('0.333333', '5.96046 × 10⁻⁸', '65,504', 'infinity')
    """
    return amount(x, 6).replace("inf", "infinity").replace("nan", "NaN")


def bits_svg(x: float, formats: Sequence[Format] = ALL, threshold: float | None = None) -> str:
    """What x is in each format: its bits, most significant first, and the number they spell."""
    longest = max(format.bits for format in formats)
    width = max(WIDE, longest * CELL + 8)
    figure = Figure.small(
        width,
        26 + ROW * len(formats),
        f"The bits of {told(x)}",
        _spell(x, formats, threshold),
        largest=1.3,
    )
    legend(figure, KEYS)
    for i, format in enumerate(formats):
        _row(figure, format, format.encode(x, threshold), x, 26 + ROW * i)
    return str(figure)


def _row(figure: Figure, format: Format, bits: int, x: float, y: float) -> None:
    """One format: its name and the number above, a cell for each bit below."""
    became = format.decode(bits)
    figure.words(0, y + 13, format.name, font_weight="bold")
    figure.words(44, y + 13, f"{told(became)}{_error(became, x)}")
    digits = f"{bits:0{format.bits}b}"
    parts = ((SIGN, 0, 1), (EXPONENT, 1, 1 + format.exponent))
    for colour, start, stop in (*parts, (FRACTION, 1 + format.exponent, format.bits)):
        boxes = [(1 + CELL * i, y + 18, CELL, 18) for i in range(start, stop)]
        figure.boxes(boxes, **colour.paint(), **OUTLINE)
    with figure.group(text_anchor="middle", font_size=11, fill=INK):
        for i, digit in enumerate(digits):
            figure.words(1 + CELL * (i + 0.5), y + 31, digit)


def _error(became: float, x: float) -> str:
    """By how much a number is off, in words."""
    if became == x:
        return ", exact"
    if not isfinite(became) or x == 0:
        return ""
    off = abs(became - x) / abs(x)
    return f", off by {percent(off, 2)}" if off < 10 else ", many times as large"


def _spell(x: float, formats: Sequence[Format], threshold: float | None) -> str:
    rows = [f"The number {told(x)} in {len(formats)} formats, a cell for each bit."]
    for format in formats:
        bits = format.encode(x, threshold)
        became = format.decode(bits)
        digits = f"{bits:0{format.bits}b}"
        sign, rest = digits[0], digits[1:]
        fields = f"{sign} {rest[: format.exponent]} {rest[format.exponent :]}"
        rows.append(f"{format.name}: {fields}, which is {told(became)}{_error(became, x)}.")
    return " ".join(rows)


# --- all numbers of a format ----------------------------------------------------------------------


def ranges_svg(formats: Sequence[Format] = ALL) -> str:
    """From the smallest to the largest number of each format, on an axis of powers of two."""
    lows = [log2(format.min_subnormal) for format in formats]
    highs = [log2(format.max) for format in formats]
    left = 10 + max(measure(format.name) for format in formats)
    x = Scale(min(lows), max(highs), left, WIDE - 14)
    bottom = 30 + 30 * len(formats)
    figure = Figure.small(
        WIDE,
        bottom + 40,
        "The ranges of the formats",
        _describe_ranges(formats),
        largest=1.3,
    )
    subnormal = EXPONENT.paint(white=0.65) | OUTLINE
    legend(figure, [("normal", EXPONENT.paint() | OUTLINE), ("subnormal", subnormal)])
    _powers(figure, x, 26, bottom)
    for i, (format, low, high) in enumerate(zip(formats, lows, highs, strict=True)):
        y, normal = 30 + 30 * i, log2(format.min_normal)
        figure.words(0, y + 15, format.name)
        tip = f"{format.name}: {told(format.min_subnormal)} to {told(format.max)}"
        figure.mark("rect", x=x(low), y=y, width=x(normal) - x(low), height=20, **subnormal)
        figure.mark(
            "rect", x=x(normal), y=y, width=x(high) - x(normal), height=20, tip=tip,
            **EXPONENT.paint(), **OUTLINE,
        )  # fmt: skip
        inside = f"{format.fraction} {'bit' if format.fraction == 1 else 'bits'} of fraction"
        if measure(inside, 11) < x(high) - x(normal):
            at = (x(normal) + x(high)) / 2
            figure.words(at, y + 14, inside, fill=INK, font_size=11, text_anchor="middle")
        else:
            figure.words(x(high) + 6, y + 14, inside, font_size=11)
    return str(figure)


def _powers(figure: Figure, x: Scale, top: float, bottom: float) -> None:
    """Faint lines and labels at round powers of two."""
    ticks = x.ticks(9)
    with figure.group(stroke="currentColor", stroke_opacity=0.15):
        for tick in ticks:
            figure.mark("path", d=f"M{number(x(tick))} {number(top)}V{number(bottom)}")
    with figure.group(text_anchor="middle", font_size=11):
        for tick in ticks:
            figure.words(x(tick), bottom + 15, str(tick).replace("-", "−"))
        figure.words((x.start + x.stop) / 2, bottom + 31, "power of two")


def _describe_ranges(formats: Sequence[Format]) -> str:
    rows = ["A bar for each format on an axis of powers of two."]
    for format in formats:
        rows.append(
            f"{format.name}: subnormal from {told(format.min_subnormal)}, normal from "
            f"{told(format.min_normal)} to {told(format.max)}, {format.fraction} bits of fraction."
        )
    return " ".join(rows)


def numbers_svg(formats: Sequence[Format], low: float, high: float) -> str:
    """Every number from low to high, a line each, one row per format, on one straight axis."""
    if not low < high:
        raise ValueError(f"high is {high}, must be above low, {low}")
    held = [_between(format, low, high) for format in formats]
    left = 10 + max(measure(format.name) for format in formats)
    x = Scale(low, high, left, WIDE - 14)
    bottom = 14 + 34 * len(formats)
    figure = Figure.small(
        WIDE,
        bottom + 24,
        f"All numbers from {told(low)} to {told(high)}",
        _describe_numbers(formats, held, low, high),
        largest=1.3,
    )
    for i, (format, values) in enumerate(zip(formats, held, strict=True)):
        y = 10 + 34 * i
        figure.words(0, y + 16, format.name)
        outline = "".join(f"M{number(x(v))} {number(y)}v22" for v in values)
        figure.mark("path", d=outline, stroke="currentColor", tip=f"{len(values)} numbers")
        figure.line(x.start, y + 22, x.stop, y + 22, stroke_opacity=0.4)
    with figure.group(text_anchor="middle", font_size=11):
        for tick in x.ticks(8):
            figure.words(x(tick), bottom + 14, str(tick).replace("-", "−"))
    return str(figure)


MOST = 2000  # lines in a row of a picture


def _between(format: Format, low: float, high: float) -> list[float]:
    """The numbers of a format in [low, high]."""
    values, v = [], format.round(low, saturate=True)
    if v < low:
        v += format.spacing(v)
    while v <= high:
        values.append(v)
        if v == format.max:
            break
        if len(values) > MOST:
            raise ValueError(
                f"formats has {format.name}, which has more than {MOST} numbers from {told(low)} "
                f"to {told(high)}, must be such as can be drawn"
            )
        # Below 0 the spacing to the next number is that of the smaller magnitude.
        step = format.spacing(v) if v >= 0 else format.spacing(v + format.spacing(v) / 2)
        v = format.round(v + step)
    return values


def _describe_numbers(formats, held, low, high) -> str:
    rows = [f"A line for each number from {told(low)} to {told(high)}."]
    for format, values in zip(formats, held, strict=True):
        gaps = sorted({b - a for a, b in pairwise(values)})
        apart = f", {told(gaps[0])} to {told(gaps[-1])} apart" if gaps else ""
        rows.append(f"{format.name} has {len(values)}{apart}.")
    return " ".join(rows)
