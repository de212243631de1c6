"""Numbers in words: one way for pictures, tables, the command line and records.

Decimal prefixes, as data sheets count (GB, TFLOP/s); `binary` ones where sizes are powers of two
(GiB). A number keeps the digits that matter and is never written as 1.02e+08.
"""

from math import inf, isfinite
from numbers import Real

from weft.plan.arguments import instance, whole

LARGE = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
BINARY = ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"), (1.0, ""))
WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _shown(**given: float) -> None:
    for name, value in given.items():
        instance(Real, **{name: value})
        if 1e300 < abs(value) < inf:
            raise ValueError(f"{name} is {value}, must be at most 1e300")


def amount(value: float, digits: int = 4) -> str:
    """A number in so many significant digits, or to the last whole one, without trailing zeros.

    >>> amount(33.0), amount(1 / 3), amount(12345.6), amount(0.0821, digits=2)
    ('33', '0.3333', '12,346', '0.082')
    >>> amount(1234.56, digits=6), amount(1.5e-5), amount(float("inf"))
    ('1,234.56', '1.5 × 10⁻⁵', 'inf')
    """
    _shown(value=value)
    digits = whole("digits", digits, most=17)
    rounded = float(f"{value:.{digits}g}")
    if not isfinite(value) or 1e-4 <= abs(rounded) < 1000 or not rounded:
        return f"{rounded:g}"
    if 1000 <= abs(rounded) < 1e15:
        places = max(0, digits - len(f"{abs(rounded):.0f}"))
        before, _, rest = f"{value:,.{places}f}".partition(".")
        return f"{before}.{rest.rstrip('0')}".rstrip(".")
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{float(mantissa):g} × {power(10, int(exponent))}"


def power(base: int | str, exponent: int) -> str:
    """A power of a base.

    >>> power(2, -22)
    '2⁻²²'
    """
    return f"{base}{str(exponent).translate(RAISED)}"


def percent(share: float, digits: int | None = None) -> str:
    """A share of one, to a tenth of a percent; or in so many significant digits.

    >>> percent(3 / 11), percent(0.25), percent(0.25, digits=3)
    ('27.3 %', '25.0 %', '25 %')
    """
    _shown(share=share)
    return f"{100 * share:.1f} %" if digits is None else f"{amount(100 * share, digits)} %"


def count(number: float) -> str:
    """How many, in three digits where there are millions.

    >>> count(7.5e9), count(123_456)
    ('7.5 billion', '123,456')
    """
    _shown(number=number)
    for size, word in WORDS:
        if number >= 0.9995 * size:
            return f"{amount(number / size, 3)} {word}"
    return f"{number:,.0f}"


def prefixed(most: float, unit: str, binary: bool = False) -> tuple[float, str]:
    """The unit in which numbers up to `most` read best: how much of `unit` it is, and its name.

    Seconds become ms, µs or ns; bytes and FLOPs, and their rates, kB to PB, or KiB to TiB
    if `binary`; other units stay as they are.

    >>> prefixed(0.032, "s"), prefixed(2e12, "FLOP/s"), prefixed(4e9, "clocks")
    ((0.001, 'ms'), (1000000000000.0, 'TFLOP/s'), (1.0, 'clocks'))
    """
    _shown(most=most)
    instance(str, unit=unit)
    if unit == "s":
        prefixes, most = SMALL, most or 1.0
    elif unit in ("B", "B/s") or unit.startswith("FLOP"):
        prefixes = BINARY if binary else LARGE
    else:
        return 1.0, unit
    least = 0.9995  # what three digits make 1
    size, prefix = next((p for p in prefixes if abs(most) >= least * p[0]), prefixes[-1])
    return size, prefix + unit


def quantity(value: float, unit: str, most: float | None = None, digits: int = 3) -> str:
    """A value with its unit, in the prefix that suits it, or that suits values up to `most`.

    >>> quantity(6.12e14, "FLOP/s"), quantity(0.00321, "s"), quantity(1.022e8, "B")
    ('612 TFLOP/s', '3.21 ms', '102 MB')
    >>> quantity(0.0005, "s", most=0.032), quantity(12.34, "1/s"), quantity(0.5, "1")
    ('0.5 ms', '12.3 per s', '0.5')
    """
    _shown(value=value)
    if unit in ("", "1"):
        return amount(value, digits)
    if unit == "1/s":
        return f"{amount(value, digits)} per s"
    size, name = prefixed(value if most is None else most, unit)
    return f"{amount(value / size, digits)} {name}"


def moment(time: float, unit: str, most: float) -> str:
    """A time on a clock that runs to `most`: a `quantity` in four digits.

    >>> moment(0.01234, "s", most=0.032), moment(33.25, "", most=40)
    ('12.34 ms', '33.25')
    """
    _shown(time=time, most=most)
    return quantity(time, unit, most, digits=4)


def binary(nbytes: float) -> str:
    """A size in the unit of 1024 that suits it.

    >>> binary(2**20), binary(1536), binary(7)
    ('1 MiB', '1.5 KiB', '7 B')
    """
    _shown(nbytes=nbytes)
    size, name = prefixed(nbytes, "B", binary=True)
    return f"{amount(nbytes / size)} {name}"


def length(number: float) -> str:
    """How many tokens or rows, in as few characters as an axis needs; k is 1024, M is 1024 k.

    >>> length(512), length(16384), length(2**22), length(1000)
    ('512', '16k', '4M', '1,000')
    """
    _shown(number=number)
    for size, letter in ((2**20, "M"), (2**10, "k")):
        if number >= size and number % size == 0:
            return f"{number / size:g}{letter}"
    return amount(number)
