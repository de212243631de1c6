"""Number formats bit by bit: what they hold, how a number gets into one, and what it loses.

A floating-point number is a sign, an exponent and a fraction. Exponent bits buy range, fraction
bits buy resolution, and every format of this book is one way to spend 8 to 32 bits on the two.
The loss scale is in scale, what a step keeps and moves in state.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import copysign, floor, frexp, inf, isinf, isnan, ldexp, nan
from statistics import NormalDist
from typing import Any

from weft.plan.arguments import chosen, few, instance, plain, row, whole

FATES = "exact", "rounded", "subnormal", "zero", "overflow"


@dataclass(frozen=True)
class Format:
    """A format of one sign bit, some for the exponent and some for the fraction.

    A number is (-1)^sign 2^(exponent - bias) (1 + fraction / 2^bits); where all exponent bits
    are 0 the one in front is dropped, and the numbers run on to 0 evenly: the subnormals. IEEE
    keeps the highest exponent for infinities and NaN. A format that is not `infinite`, e4m3,
    keeps one pattern for NaN and spends the others on numbers: Micikevicius et al. 2022, table 1.
    One without `nans`, e2m1, has numbers only: OCP Microscaling Formats 1.0, section 5.3.

    >>> half = FORMATS["fp16"]
    >>> half.max, half.min_normal == 2**-14, half.min_subnormal == 2**-24
    (65504.0, True, True)
    >>> half.epsilon == 2**-10, half.bits, half.bias
    (True, 16, 15)
    """

    name: str
    exponent: int
    fraction: int
    infinite: bool = True
    nans: bool = True

    def __post_init__(self) -> None:
        whole("exponent", self.exponent, least=2, most=10)  # those of Python's own floats have 11
        whole("fraction", self.fraction, most=51)

    @property
    def bits(self) -> int:
        """All of them, the sign too."""
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        """What is taken off the exponent's bits to give the exponent."""
        return 2 ** (self.exponent - 1) - 1

    @cached_property
    def max(self) -> float:
        """The largest number."""
        return self.decode(self._largest)

    @cached_property
    def min_normal(self) -> float:
        """The smallest number above 0 that has all its bits of fraction."""
        return ldexp(1.0, 1 - self.bias)

    @cached_property
    def min_subnormal(self) -> float:
        """The smallest number above 0."""
        return ldexp(1.0, 1 - self.bias - self.fraction)

    @cached_property
    def epsilon(self) -> float:
        """From 1 to the next number."""
        return ldexp(1.0, -self.fraction)

    @property
    def _largest(self) -> int:
        """The bits of the largest number."""
        if self.infinite:
            return self._infinity - 1
        return 2 ** (self.bits - 1) - (2 if self.nans else 1)

    @property
    def _infinity(self) -> int:
        """The bits of infinity, or what comes in its place: all exponent bits, or simply all."""
        ones = 2**self.exponent - 1 if self.infinite else 2 ** (self.bits - 1) - 1
        return ones << self.fraction if self.infinite else ones

    @property
    def _nan(self) -> int:
        """The bits of the NaN that arithmetic makes: the first bit of its fraction is 1."""
        return self._infinity | 1 << (self.fraction - 1)

    def spacing(self, x: float) -> float:
        """How far numbers are apart at x: 2^-fraction of the power of two at or below it.

        >>> FORMATS["fp16"].spacing(2049.0), FORMATS["bf16"].spacing(2049.0)
        (2.0, 16.0)
        """
        return ldexp(1.0, self._place(_finite("x", x)) - self.fraction)

    def _place(self, x: float) -> int:
        """The exponent that x has here; no less than that of the smallest normal number."""
        least = 1 - self.bias
        return max(frexp(x)[1] - 1, least) if x else least

    def fields(self, bits: int) -> tuple[int, int, int]:
        """Sign, exponent and fraction, each as the whole number that its bits spell.

        >>> FORMATS["fp16"].fields(FORMATS["fp16"].encode(-1.5))
        (1, 15, 512)
        """
        bits = self._bits(bits)
        exponent = bits >> self.fraction & 2**self.exponent - 1
        return bits >> self.bits - 1, exponent, bits & 2**self.fraction - 1

    def _bits(self, bits: int) -> int:
        bits = plain(bits)
        if not isinstance(bits, int) or isinstance(bits, bool) or not 0 <= bits < 2**self.bits:
            raise ValueError(
                f"bits is {bits!r}, must be a whole number from 0 to {2**self.bits - 1}"
            )
        return bits

    def decode(self, bits: int) -> float:
        """The number that these bits stand for.

        >>> [FORMATS["e4m3"].decode(bits) for bits in (0x01, 0x38, 0x7E, 0x7F, 0xB8)]
        [0.001953125, 1.0, 448.0, nan, -1.0]
        """
        sign, exponent, fraction = self.fields(bits)
        magnitude = bits & 2 ** (self.bits - 1) - 1
        if magnitude > self._largest:
            value = inf if self.infinite and fraction == 0 else nan
        elif exponent == 0:
            value = fraction * self.min_subnormal
        else:
            value = ldexp(fraction + 2**self.fraction, exponent - self.bias - self.fraction)
        return copysign(value, -1.0 if sign else 1.0)

    def encode(
        self,
        x: float,
        threshold: float | None = None,
        saturate: bool | None = None,
    ) -> int:
        """The bits of the number that x is rounded to.

        Two neighbours enclose x; `part` says how far x is from the lower one to
        the upper. Without a `threshold` the nearer one is taken, and of two that
        are as near the one whose last bit is 0: torch's casts. With one, x goes up
        in magnitude where its part exceeds it, so that a threshold drawn evenly
        from [0, 1) rounds up with probability `part`: stochastic rounding. 0.5
        sends ties to 0, and 1 cuts the bits off.

        What is rounded beyond the largest number becomes infinity, and the largest
        number where the format has no infinity: torch's casts of today. `saturate`
        chooses the largest number (True, infinities too) or infinity and NaN
        (False; so e4m3 in older versions of torch).
        """
        x, threshold = real("x", x), _threshold(threshold)
        sign = int(copysign(1.0, x) < 0) << self.bits - 1
        if isnan(x):
            if not self.nans:
                raise ValueError(f"x is nan, must be a number: {self.name} has no NaN")
            return sign | self._nan
        if saturate is None:
            saturate = not self.infinite
        most = self._largest if saturate or not self.nans else self._infinity
        return sign | min(self._magnitude(x, threshold), most)

    def _magnitude(self, x: float, threshold: float | None) -> int:
        """The bits of |x| as if the exponent had no end."""
        if isinf(x):
            return 2**self.bits
        place = self._place(x)
        steps = ldexp(abs(x), self.fraction - place)
        if threshold is None:
            whole = round(steps)  # Python's own takes the even one of two
        else:
            whole = floor(steps) + (steps - floor(steps) > threshold)
        # A fraction that overflows carries into the exponent, as it should.
        return ((place + self.bias - 1) << self.fraction) + whole

    def round(
        self, x: float, threshold: float | None = None, saturate: bool | None = None
    ) -> float:
        """The number of this format that x becomes; see encode.

        >>> half, brain = FORMATS["fp16"], FORMATS["bf16"]
        >>> half.round(2049), half.round(2051), half.round(70000), half.round(2e-8)
        (2048.0, 2052.0, inf, 0.0)
        >>> brain.round(2049), brain.round(2049, threshold=0.01), brain.round(70000)
        (2048.0, 2064.0, 70144.0)
        """
        return self.decode(self.encode(x, threshold, saturate))

    def fate(self, x: float) -> str:
        """What becomes of a finite x: one of FATES.

        "exact" and "rounded" keep all bits of fraction that there are, "subnormal" is what is
        left of a number below the smallest normal one, unless it is exact.

        >>> [FORMATS["fp16"].fate(x) for x in (1, 1.0001, 1e-6, 1e-9, 1e6)]
        ['exact', 'rounded', 'subnormal', 'zero', 'overflow']
        """
        x = _finite("x", x)
        if self._magnitude(x, None) > self._largest:
            return "overflow"
        became = self.round(x)
        if became == x:
            return "exact"
        if became == 0:
            return "zero"
        return "rounded" if abs(became) >= self.min_normal else "subnormal"


FORMATS = {
    one.name: one
    for one in (
        Format("fp32", exponent=8, fraction=23),
        Format("tf32", exponent=8, fraction=10),
        Format("fp16", exponent=5, fraction=10),
        Format("bf16", exponent=8, fraction=7),
        Format("e4m3", exponent=4, fraction=3, infinite=False),
        Format("e5m2", exponent=5, fraction=2),
    )
}

E2M1 = Format("e2m1", exponent=2, fraction=1, infinite=False, nans=False)  # of MXFP4 and NVFP4


def known(format: str) -> Format:
    """The format of that name."""
    return FORMATS[chosen("format", format, FORMATS)]


def add(format: Format, *numbers: float, threshold: float | None = None) -> float:
    """A sum from left to right in a format, rounded after every addition.

    The exact sum of two numbers is rounded once, which is what hardware does. `threshold` says how,
    see Format.encode: 1 cuts off.

    >>> add(FORMATS["fp16"], 2048, 1, 1, 1), add(FORMATS["fp16"], 1, 1, 1, 2048)
    (2048.0, 2052.0)
    >>> add(FORMATS["fp16"], 2048, 3), add(FORMATS["fp16"], 2048, 3, threshold=1.0)
    (2052.0, 2050.0)
    """
    instance(Format, format=format)
    numbers = tuple(_finite("numbers", x) for x in numbers)
    total = format.round(numbers[0], threshold) if numbers else 0.0
    for x in numbers[1:]:
        total = format.round(total + format.round(x, threshold), threshold)
    return total


def least_update(format: Format, weight: float) -> float:
    """The size below which an update that is added to a weight changes nothing: half a spacing.

    So an update is lost where it is smaller than the weight by a factor of 2^(fraction + 1) to
    2^(fraction + 2), depending on where the weight lies between two powers of two. Micikevicius
    et al. 2018, section 3.1.

    >>> 1.0 / least_update(FORMATS["fp16"], 1.0), 1.0 / least_update(FORMATS["bf16"], 1.0)
    (2048.0, 256.0)
    """
    instance(Format, format=format)
    return format.spacing(_finite("weight", weight)) / 2


def decayed(format: Format, beta: float, steps: int, start: float = 1.0) -> float:
    """A running mean that only zeros come into, rounded after every step: what is left of `start`.

    Exactly it would be start * beta^steps. Where 1 - beta is below half of the spacing over the
    number, it stays for ever: Adam's second moment with beta 0.999 in bf16.

    >>> [decayed(FORMATS[name], 0.999, 5000) > 0.1 for name in ("fp32", "fp16", "bf16")]
    [False, False, True]
    >>> decayed(FORMATS["bf16"], 0.999, 5000)
    1.0
    """
    instance(Format, format=format)
    beta, steps = _finite("beta", beta), whole("steps", steps, least=0)
    if not 0 <= beta <= 1:
        raise ValueError(f"beta is {beta}, must be from 0 to 1")
    few(steps, "steps", steps=steps)
    mean = format.round(_finite("start", start))
    for _ in range(steps):
        mean = format.round(mean * beta)
    return mean


def fates(
    format: Format, numbers: Mapping[float, int] | Iterable[float], scale: float = 1.0
) -> dict[str, float]:
    """The share of numbers, each multiplied by `scale` first, that meets each of FATES.

    Numbers may come with how often each occurs. Zeros, which nothing can happen to, do not count.

    >>> fates(FORMATS["fp16"], [1.0, 3e-9, 0.0, 1e-7, 3e-9])["zero"]
    0.5
    """
    instance(Format, format=format)
    scale = _finite("scale", scale)
    if scale <= 0:
        raise ValueError(f"scale is {scale!r}, must be above 0")
    if not isinstance(numbers, Mapping):
        numbers = Counter(_finite("numbers", x) for x in row("numbers", numbers))
    found, total = dict.fromkeys(FATES, 0), 0
    for x, count in numbers.items():
        if x != 0:
            x = real("numbers", x) * scale
            found["overflow" if isinf(x) else format.fate(x)] += count
            total += count
    if not total:
        raise ValueError("numbers holds none but zeros, must hold at least one other number")
    return {fate: count / total for fate, count in found.items()}


def bell(middle: float, spread: float, n: int = 1000) -> list[float]:
    """So many magnitudes whose binary logarithm is normally distributed: quantiles, no dice.

    What gradients of a layer look like on a logarithmic axis, roughly. `middle` and `spread` are
    powers of two.

    >>> [round(x, 4) for x in bell(middle=-3, spread=2, n=3)]
    [0.0327, 0.125, 0.4779]
    """
    middle, spread = _finite("middle", middle), _finite("spread", spread)
    if not spread > 0:
        raise ValueError(f"spread is {spread}, must be above 0")
    n = whole("n", n)
    few(n, "numbers", n=n)
    if abs(middle) + 10 * spread > 1000:  # no quantile of so few lies further out
        raise ValueError(f"middle is {middle} and spread is {spread}, must be powers within 2^1000")
    normal = NormalDist(middle, spread)
    return [2.0 ** normal.inv_cdf((i + 0.5) / n) for i in range(n)]


def real(name: str, x: Any) -> float:
    """Any number of Python's, infinities and NaN too, as a float."""
    given, x = x, plain(x)
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise ValueError(f"{name} is {given!r}, must be a number")
    try:
        return float(x)
    except OverflowError:
        raise ValueError(f"{name} is {x}, must be finite") from None


def _finite(name: str, x: Any) -> float:
    x = real(name, x)
    if isnan(x) or isinf(x):
        raise ValueError(f"{name} is {x}, must be finite")
    return x


def _threshold(threshold: Any) -> float | None:
    if threshold is None:
        return None
    threshold = real("threshold", threshold)
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold}, must be from 0 to 1")
    return threshold
