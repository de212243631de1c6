"""Numbers in words: three digits, the prefix that suits, no power of ten that can be avoided."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.plan.units import LARGE, SMALL, amount, binary, count, length, percent, quantity

BINARY = {"B": 1} | {f"{letter}iB": 1024 ** (i + 1) for i, letter in enumerate("KMGT")}
MAGNITUDES = st.floats(-9, 17.9).map(lambda power: 10**power)


def read(text: str, sizes: dict[str, float]) -> float:
    """What somebody reads in "1,234.5 ms"."""
    number, _, unit = text.partition(" ")
    return float(number.replace(",", "")) * sizes[unit]


@given(MAGNITUDES, st.sampled_from([("s", SMALL), ("B", LARGE), ("B/s", LARGE), ("FLOP/s", LARGE)]))
def test_quantities_keep_three_digits_and_are_between_1_and_1000(value, unit):
    unit, prefixes = unit
    shown = quantity(value, unit)
    sizes = {prefix + unit: size for size, prefix in prefixes}
    if "×" not in shown:
        assert read(shown, sizes) == pytest.approx(value, rel=6e-3)
        inside = max(sizes.values()) > value / 1000 and value >= min(sizes.values())
        assert not inside or 1 <= float(shown.split()[0].replace(",", "")) < 1000


@pytest.mark.parametrize(
    ("value", "shown"),
    [(999.4, "999 B"), (999.6, "1 kB"), (0.5, "0.5 B"), (0, "0 B"), (-2e9, "-2 GB")],
)
def test_a_prefix_begins_where_rounding_reaches_it(value, shown):
    assert quantity(value, "B") == shown


def test_zero_seconds_are_seconds():
    assert quantity(0, "s") == "0 s" and quantity(0, "s", most=0.01) == "0 ms"


@given(MAGNITUDES, st.integers(1, 6))
def test_an_amount_has_its_digits_and_is_not_written_with_an_e(value, digits):
    shown = amount(value, digits)
    assert "e" not in shown
    number, _, raised = shown.partition(" × 10")
    power = int(raised.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0)
    found = float(number.replace(",", "")) * 10.0**power
    assert found == pytest.approx(value, rel=0.51 * 10 ** (1 - digits) + 1e-12)
    assert not re.search(r"\.\d*0$", number)


@given(st.integers(1, 2**42))
def test_binary_sizes_are_what_they_say(nbytes):
    shown = binary(nbytes)
    assert read(shown, BINARY) == pytest.approx(nbytes, rel=6e-4)
    assert float(shown.split()[0].replace(",", "")) <= 1024 or shown.endswith("TiB")


@given(st.integers(1, 10**14))
def test_counts_and_lengths(number):
    words = {"": 1, "million": 1e6, "billion": 1e9, "trillion": 1e12}
    assert read(count(number), words) == pytest.approx(number, rel=6e-3)
    if length(number)[-1] in "kM":
        size = {"k": 1024, "M": 1024**2}[length(number)[-1]]
        assert int(float(length(number)[:-1]) * size) == pytest.approx(number, rel=1e-5)


def test_shares():
    assert percent(0) == "0.0 %" and percent(1, 3) == "100 %" and percent(5e-4, 3) == "0.05 %"
