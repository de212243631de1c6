"""Formats against torch's casts, bit by bit; what is lost; the loss scale; what a step keeps."""

import doctest
import random
import struct
from bisect import bisect
from fractions import Fraction
from importlib import import_module
from math import copysign, inf, isinf, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.plan.hardware import CHIPS
from weft.plan.precision.formats import (
    E2M1,
    FATES,
    FORMATS,
    Format,
    add,
    decayed,
    fates,
    known,
    least_update,
)
from weft.plan.precision.gain import linear_gain, linear_part
from weft.plan.precision.scale import LossScale, blocked, delayed, in_blocks, outlier
from weft.plan.precision.state import RECIPES, Recipe
from weft.plan.precision.sums import summed

SMALL = [FORMATS[name] for name in ("fp16", "bf16", "e4m3", "e5m2")]
TORCH = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
TORCH |= {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
formats = st.sampled_from(list(FORMATS.values()))
numbers = st.floats(allow_nan=False, allow_infinity=False)
thresholds = st.none() | st.floats(0, 1)


def name(x):
    return getattr(x, "name", None)


def same(a, b):
    """Equal, sign of zero included; NaN is NaN."""
    return (isnan(a) and isnan(b)) or (a == b and copysign(1, a) == copysign(1, b))


@pytest.mark.parametrize("module", ["formats", "gain", "scale", "state", "sums"])
def test_docstrings_compute_what_they_say(module):
    result = doctest.testmod(import_module(f"weft.plan.precision.{module}"))
    assert result.failed == 0 and result.attempted > 0


# --- against torch --------------------------------------------------------------------------------


def patterns(format):
    """The numbers of all 2^bits patterns, by torch, as Python's floats."""
    torch = pytest.importorskip("torch", reason="its casts")
    whole = torch.arange(2**format.bits, dtype=torch.int32)
    raw = whole.to(torch.uint8) if format.bits == 8 else whole.to(torch.int16)
    return raw.view(getattr(torch, TORCH[format.name])).double().tolist()


@pytest.mark.parametrize("format", SMALL, ids=name)
def test_every_pattern_is_the_number_that_torch_reads(format):
    read = patterns(format)
    assert len(read) == 2**format.bits
    assert all(same(format.decode(bits), x) for bits, x in enumerate(read))


@pytest.mark.parametrize("format", SMALL, ids=name)
def test_every_number_goes_back_to_its_pattern(format):
    for bits in range(2**format.bits):
        x = format.decode(bits)
        assert isnan(x) or format.encode(x) == bits
        assert not isnan(x) or isnan(format.decode(format.encode(x)))


def samples(format):
    """fp32 numbers that try every way of rounding: any bits, ties, their neighbours, the ends."""
    dice = random.Random(format.name)
    bits = [dice.getrandbits(32) for _ in range(6000)]
    found = [struct.unpack("f", struct.pack("I", b))[0] for b in bits]
    fp32 = FORMATS["fp32"]
    ends = [format.max, format.min_normal, format.min_subnormal, 1.0]
    grid = [format.decode(dice.randrange(2**format.bits)) for _ in range(1500)]
    for x in ends + [x for x in grid if not isnan(x) and not isinf(x)]:
        half = format.spacing(x) / 2
        for tie in (x, x + half, x - half, x / 2, 2 * x):
            tie = fp32.round(tie)
            found += [tie, -tie]
            if not isinf(tie):
                tiny = fp32.spacing(tie)
                found += [fp32.round(tie + tiny), fp32.round(tie - tiny)]
    return [*found, 0.0, -0.0, inf, -inf, nan, fp32.max, -fp32.max, fp32.min_subnormal]


@pytest.mark.parametrize("format", SMALL, ids=name)
def test_rounding_is_torchs_cast(format):
    torch = pytest.importorskip("torch", reason="its casts")
    given = torch.tensor(samples(format), dtype=torch.float32)
    dtype = getattr(torch, TORCH[format.name])
    cast = given.to(dtype).double().tolist()
    assert len(cast) > 10_000
    # Older versions of torch made NaN of what is too large for e4m3.
    saturate = False if format.name == "e4m3" and torch.ones(1).mul(1e9).to(dtype).isnan() else None
    for x, expected in zip(given.tolist(), cast, strict=True):
        got = format.round(x, saturate=saturate)
        assert same(got, expected), (x, got, expected)


def test_fp32_is_what_a_float_is_packed_to_and_what_torch_makes_of_it():
    torch = pytest.importorskip("torch", reason="its casts")
    dice, fp32 = random.Random(0), FORMATS["fp32"]
    doubles = [dice.uniform(-1, 1) * 2.0 ** dice.randint(-155, 130) for _ in range(5000)]
    cast = torch.tensor(doubles, dtype=torch.float64).float()
    for x, expected, bits in zip(
        doubles, cast.double().tolist(), cast.view(torch.int32).tolist(), strict=True
    ):
        assert same(fp32.round(x), expected)
        assert fp32.encode(x) == bits & 0xFFFFFFFF
        assert same(fp32.decode(bits & 0xFFFFFFFF), expected)


def test_the_words_of_torchs_finfo():
    torch = pytest.importorskip("torch", reason="its limits")
    for format in FORMATS.values():
        if format.name in TORCH:
            info = torch.finfo(getattr(torch, TORCH[format.name]))
            assert (format.max, format.min_normal, format.epsilon, format.bits) == (
                info.max,
                info.smallest_normal,
                info.eps,
                info.bits,
            )


def test_numbers_of_torch_and_numpy_are_welcome():
    numpy, torch = (pytest.importorskip(x, reason="its numbers") for x in ("numpy", "torch"))
    half = FORMATS["fp16"]
    for x in (numpy.float32(2049), torch.tensor(2049.0)):
        assert half.round(x) == 2048 and half.spacing(x) == 2
    assert half.decode(numpy.int64(0x3C00)) == half.decode(torch.tensor(0x3C00)) == 1


# --- formats --------------------------------------------------------------------------------------


def test_the_limits_that_everybody_quotes():
    half, brain, e4m3, e5m2 = SMALL
    tf32 = FORMATS["tf32"]
    assert (half.max, e4m3.max, e5m2.max) == (65504, 448, 57344)
    assert (half.min_normal, half.min_subnormal) == (2**-14, 2**-24)
    assert (e4m3.min_normal, e4m3.min_subnormal) == (2**-6, 2**-9)
    assert (e5m2.min_normal, e5m2.min_subnormal) == (2**-14, 2**-16)
    assert brain.min_normal == tf32.min_normal == FORMATS["fp32"].min_normal == 2.0**-126
    assert tf32.epsilon == half.epsilon == 2**-10 and tf32.bits == 19
    assert [format.epsilon for format in (brain, e4m3, e5m2)] == [2**-7, 2**-3, 2**-2]


def test_two_to_the_places_that_are_left():
    """NaNs and infinities of each kind: e4m3 has no infinity and two NaNs."""
    for format, infinities, nans in (
        (FORMATS["e4m3"], 0, 2),
        (FORMATS["e5m2"], 2, 6),
        (FORMATS["fp16"], 2, 2**11 - 2),
    ):
        values = [format.decode(bits) for bits in range(2**format.bits)]
        assert sum(map(isinf, values)) == infinities and sum(map(isnan, values)) == nans


@pytest.mark.parametrize("format", [FORMATS["e4m3"], FORMATS["e5m2"]], ids=name)
@given(x=numbers | st.floats(-1e3, 1e3), threshold=thresholds)
def test_rounding_goes_to_a_neighbour(format, x, threshold):
    """By search among all numbers, in exact fractions: the nearer, or the one by threshold."""
    finite = [format.decode(bits) for bits in range(2 ** (format.bits - 1))]
    finite = [v for v in finite if not isnan(v) and not isinf(v)]
    got = format.round(x, threshold, saturate=True)
    assert copysign(1, got) == copysign(1, x)
    i = bisect(finite, abs(x)) - 1
    if i == len(finite) - 1:
        assert abs(got) == format.max
        return
    part = (Fraction(abs(x)) - Fraction(finite[i])) / Fraction(finite[i + 1] - finite[i])
    cut = Fraction(1, 2) if threshold is None else Fraction(threshold)
    up = part > cut or (threshold is None and part == cut and i % 2 == 1)
    assert abs(got) == finite[i + up]


@given(format=formats, x=numbers, y=numbers, threshold=thresholds)
def test_rounding_keeps_the_order_and_what_is_there_already(format, x, y, threshold):
    one, other = (format.round(z, threshold, saturate=True) for z in (x, y))
    assert one <= other if x <= y else one >= other
    assert format.round(one, threshold) == one
    assert format.round(-x, threshold, saturate=True) == -one


@given(format=formats, x=st.floats(-400, 400))
def test_the_error_is_at_most_half_a_spacing(format, x):
    error = abs(Fraction(format.round(x)) - Fraction(x))
    assert error <= Fraction(format.spacing(x)) / 2
    if abs(x) >= format.min_normal:
        assert error <= abs(Fraction(x)) * Fraction(format.epsilon) / 2


@pytest.mark.parametrize("format", SMALL, ids=name)
def test_thresholds_that_are_even_give_the_number_on_average(format):
    for x in (1.3, -0.77, 5.015625e-3, 100.1):
        n = 2**10
        x = round(x / format.spacing(x) * n) * format.spacing(x) / n  # part is a multiple of 1 / n
        mean = sum(Fraction(format.round(x, threshold=i / n)) for i in range(n)) / n
        assert mean == Fraction(x)


def test_overflow_has_three_ends():
    half, _, e4m3, e5m2 = SMALL
    assert half.round(65519.99) == 65504 and half.round(65520) == inf
    assert half.round(-1e9, saturate=True) == -65504 == half.round(-inf, saturate=True)
    assert half.round(65520, saturate=True) == 65504 and e4m3.round(470) == 448
    assert e4m3.round(464, saturate=False) == 448 and isnan(e4m3.round(464.1, saturate=False))
    assert e4m3.round(1e9) == 448 == -e4m3.round(-inf) and isnan(e4m3.round(inf, saturate=False))
    assert isnan(e4m3.round(nan)) and isnan(e4m3.round(nan, saturate=True))
    assert e5m2.round(61439) == 57344 and e5m2.round(-61440) == -inf


def test_cutting_off_and_ties_to_zero():
    brain = FORMATS["bf16"]
    assert brain.round(1 + 2**-7 - 2**-20, threshold=1) == 1
    assert brain.round(1 + 3 * 2**-8, threshold=0.5) == 1 + 2**-7
    assert brain.round(1 + 3 * 2**-8) == 1 + 2**-6
    assert brain.round(-(1 + 2**-30), threshold=0) == -(1 + 2**-7)


@given(format=formats, x=numbers)
def test_a_fate_says_what_rounding_does(format, x):
    fate, became = format.fate(x), format.round(x, saturate=False)
    assert fate in FATES
    assert (fate == "exact") == (became == x)
    assert (fate == "zero") == (became == 0 != x)
    assert (fate == "overflow") == (not abs(became) <= format.max)
    assert (fate == "subnormal") == (became != x and 0 < abs(became) < format.min_normal)


def test_fates_count_what_is_not_zero():
    numbers = {2.0**-30: 3, 2.0**-15 * 1.0001: 4, 0.0: 50, 3.0: 2, 1e30: 1}
    half = FORMATS["fp16"]
    told = fates(half, numbers)
    expected = {"zero": 0.3, "subnormal": 0.4, "exact": 0.2, "overflow": 0.1, "rounded": 0.0}
    assert told == expected
    assert fates(half, [x for x, n in numbers.items() for _ in range(n)]) == expected
    assert fates(half, numbers, scale=2.0**10)["zero"] == 0


@given(format=formats, weight=st.floats(2**-5, 300))
def test_less_than_the_least_update_changes_nothing(format, weight):
    weight = format.round(weight)
    least = least_update(format, weight)
    assert 2 ** (format.fraction + 1) <= weight / least < 2 ** (format.fraction + 2)
    assert format.round(weight + 0.999 * least) == weight
    if weight < 256:
        assert format.round(weight + 1.001 * least) > weight


@given(format=formats, weight=st.floats(1, 300), part=st.floats(0.501, 0.999))
def test_what_arrives_is_a_whole_number_of_spacings(format, weight, part):
    """So an update just above half a spacing comes out nearly twice as large."""
    weight = format.round(weight)
    if weight + format.spacing(weight) <= format.max:
        update = part * format.spacing(weight)
        assert format.round(weight + update) - weight == format.spacing(weight)


def test_adams_second_moment_in_bf16_never_falls_with_the_usual_beta():
    """Against torch's own Adam: its bf16 moment stays, and one with beta2 of 0.95 follows."""
    torch = pytest.importorskip("torch", reason="its Adam")
    brain = FORMATS["bf16"]
    assert decayed(brain, 0.999, 5000) == 1 and 0.999**5000 < 0.007
    assert decayed(brain, 0.95, 60) == pytest.approx(0.95**60, rel=0.1)
    assert decayed(FORMATS["fp32"], 0.999, 5000) == pytest.approx(0.999**5000, rel=1e-3)
    for beta in (0.999, 0.95):
        weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
        optimizer = torch.optim.Adam([weight], lr=0.0, betas=(0.9, beta))
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
        optimizer.state[weight]["exp_avg_sq"].fill_(1)
        for _ in range(60):
            optimizer.step()
        left = optimizer.state[weight]["exp_avg_sq"].item()
        assert left == pytest.approx(decayed(brain, beta, 60), rel=0.05)


def test_gradients_of_zero_bring_no_bf16_second_moment_down():
    """At 0.999, whatever its fraction; at 0.95 they bring all down."""
    brain = FORMATS["bf16"]
    for moment in (1 + i / 128 for i in range(128)):
        assert brain.round(0.999 * moment) == moment > brain.round(0.95 * moment)


def test_when_a_bf16_second_moment_rises():
    """The page says from about three to five times as large a square on."""
    brain, beta = FORMATS["bf16"], 0.999

    def after(moment, square):
        return brain.round(beta * moment + (1 - beta) * square)

    for moment in (1.0, 1.9921875):
        assert after(moment, 2.9 * moment) == moment < after(moment, 5 * moment)


def test_sums_depend_on_the_order():
    brain = FORMATS["bf16"]
    assert add(brain, *[1.0] * 300) == 256 and add(brain) == 0
    assert add(FORMATS["fp32"], *[1.0] * 300) == 300


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: known("fp8"), "format is 'fp8', must be one of fp32, tf32"),
        (lambda: FORMATS["fp16"].decode(65536), "bits is 65536, must be a whole number from 0"),
        (lambda: FORMATS["e4m3"].decode(-1), "bits is -1, must be a whole number from 0 to 255"),
        (lambda: FORMATS["fp16"].fields(1.5), "bits is 1.5"),
        (lambda: FORMATS["fp16"].round("1"), "x is '1', must be a number"),
        (lambda: FORMATS["fp16"].round(True), "x is True, must be a number"),
        (lambda: FORMATS["fp16"].round(1, threshold=1.5), "threshold is 1.5, must be from 0 to 1"),
        (lambda: FORMATS["fp16"].round(1, threshold=nan), "threshold is nan"),
        (lambda: FORMATS["fp16"].spacing(inf), "x is inf, must be finite"),
        (lambda: FORMATS["fp16"].fate(nan), "x is nan, must be finite"),
        (lambda: fates(FORMATS["fp16"], [0.0]), "numbers holds none but zeros"),
        (lambda: fates(FORMATS["fp16"], [1.0], scale=inf), "scale is inf, must be finite"),
        (lambda: fates(FORMATS["fp16"], [1.0], scale=0), "scale is 0.*, must be above 0"),
        (lambda: LossScale(value=-1.0), "value is -1.0, must be a finite number of at least 0"),
        (
            lambda: LossScale(growth_factor=1.0),
            "growth_factor is 1.0, must be a finite number above 1",
        ),
        (lambda: LossScale(backoff_factor=1.0), "backoff_factor is 1.0, .* above 0 and below 1"),
        (lambda: LossScale(growth_interval=0), "growth_interval is 0, must be a whole number"),
        (
            lambda: LossScale(clean=2000),
            "clean is 2000, must be from 0 to below growth_interval, 2000",
        ),
        (lambda: Recipe("fp64", "fp32", None, "fp32"), "weights is 'fp64'"),
    ],
)
def test_what_is_wrong_is_said(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# --- the loss scale -------------------------------------------------------------------------------


def test_the_scale_grows_after_two_thousand_and_halves_at_once():
    start = LossScale()
    assert start.value == 65536
    walked = start.walk([False] * 2000)
    assert [one.value for one in walked[-2:]] == [65536, 131072] and walked[-1].clean == 0
    assert start.walk([True] * 5)[-1].value == 65536 / 2**5
    assert start.walk([False] * 1999 + [True] + [False] * 1999)[-1].value == 32768


def test_the_scale_never_becomes_infinite():
    high = LossScale(value=2.0**127, growth_interval=1)
    assert high.after(False).value == 2.0**127 and high.after(False).clean == 0


def test_the_scale_is_kept_in_fp32():
    odd = LossScale(value=3.0, growth_factor=1.1, backoff_factor=0.3, growth_interval=1)
    fp32 = FORMATS["fp32"]
    assert odd.after(False).value == fp32.round(3.0 * 1.1) != 3.0 * 1.1
    assert odd.after(True).value == fp32.round(3.0 * 0.3) != 3.0 * 0.3


@given(interval=st.integers(1, 9), largest=st.floats(1e-6, 1e4))
def test_in_the_long_run_one_step_in_an_interval_and_one_is_skipped(interval, largest):
    """The scale settles one doubling below overflow: grow, overflow, back, and so on."""
    settled = 60 + 45 * interval
    skipped = LossScale(growth_interval=interval).against(
        [largest] * (settled + 10 * (interval + 1))
    )
    assert sum(skipped[settled:]) == 10


def test_delayed_scaling():
    top = FORMATS["e4m3"].max
    assert delayed([1.0, 448.0, 2.0], top) == 1 and delayed([7.0], top, margin=2) == 16
    assert delayed([0.0, 0.0], top, before=5.0) == 5 == delayed([inf], top, before=5.0)
    assert delayed([], top) == 1
    assert delayed([1e-44], top) == FORMATS["fp32"].max


@pytest.mark.parametrize("block", [1, 16, 32, 128, 4096])
def test_blocks_keep_an_outlier_to_itself(block):
    numbers, format = outlier(2.0**18), FORMATS["e4m3"]
    scaled = in_blocks(numbers, format, block)
    for start in range(0, 4096, block):
        assert max(scaled[start : start + block]) == pytest.approx(448)
    shares = blocked(numbers, format, block)
    alone = blocked(outlier(1.0), format, block)
    hurt, base = (share["zero"] + share["subnormal"] for share in (shares, alone))
    assert hurt - base <= block / 4096
    assert block < 4096 or hurt > 0.9
    assert sorted(outlier(5.0))[-3:-1] != [5.0, 5.0] and len(set(outlier(1e9))) == 4096


@given(history=st.lists(st.floats(1e-20, 1e20), min_size=1))
def test_what_the_history_has_seen_fits(history):
    top = FORMATS["e5m2"].max
    assert max(history) * delayed(history, top) <= top * (1 + 2**-22)
    assert delayed(history, top, margin=3) == pytest.approx(delayed(history, top) / 8)


# --- bytes ----------------------------------------------------------------------------------------


def test_recipes_keep_what_papers_count():
    kept = {name: recipe.kept for name, recipe in RECIPES.items()}
    assert kept["mixed"] == 2 + 2 + 12 and kept["fp32"] == 16
    assert RECIPES["mixed"].state == 12 and RECIPES["mixed, fp32 gradients"].kept == 18
    assert RECIPES["bf16 alone"].moved == 2 + 3 * 2 + 3 * 2
    assert Recipe("tf32", "tf32", None, "fp32").kept == 16


def test_formats_of_ones_own_work():
    tiny = Format("e3m2", exponent=3, fraction=2, infinite=False)
    values = sorted(tiny.decode(bits) for bits in range(31))
    assert values[0] == 0 and values[-1] == tiny.max == 2.0**4 * 1.5
    assert all(tiny.round(x) == x for x in values)


# --- four bits, sums, and what FP8 gains ----------------------------------------------------------


def test_e2m1_has_fifteen_values_and_saturates():
    values = sorted({E2M1.decode(bits) for bits in range(16)})
    assert values == [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert E2M1.round(inf) == E2M1.round(1e9, saturate=False) == 6 == -E2M1.round(-7.0)
    assert [E2M1.fate(x) for x in (6.99, 7, 6, 0.3, 0.2)] == [
        "rounded", "overflow", "exact", "subnormal", "zero",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="x is nan, must be a number: e2m1 has no NaN"):
        E2M1.round(nan)


@given(part=st.floats(0.01, 0.49), steps=st.integers(1, 60), name=st.sampled_from(["bf16", "fp16"]))
def test_kahans_sum_stays_within_a_spacing_of_the_exact_one(part, steps, name):
    format = FORMATS[name]
    update = format.round(part * format.epsilon)
    exact, nearest, kahan = (
        summed(format, 1.0, update, steps, way) for way in ("exact", "nearest", "kahan")
    )
    assert nearest == [1.0] * steps
    for one, other in zip(exact, kahan, strict=True):
        assert abs(one - other) <= format.epsilon * 0.52


def test_stochastic_sums_are_right_on_average():
    brain = FORMATS["bf16"]
    ends = [summed(brain, 1.0, 0.3 * brain.epsilon, 40, "stochastic", s)[-1] for s in range(400)]
    assert sum(ends) / 400 == pytest.approx(1 + 12 * brain.epsilon, rel=2e-3)
    assert len(set(ends)) > 5


def test_the_gain_of_fp8_grows_with_the_layer_to_the_ratio_of_the_peaks():
    chip = CHIPS["h100"]
    gains = [linear_gain(2**i, 2**i, 2**i, chip) for i in range(6, 20)]
    assert gains == sorted(gains) and gains[0] < 0.05 and 1.98 < gains[-1] < 2.01
    sure = linear_gain(4096, 4096, 4096, chip, launch=0)
    casts = 3 * 6 * 4096**2 / chip.bandwidth
    work = 6 * 4096**3 / 0.7
    expected = work / chip.rate("bf16") / (work / chip.rate("fp8") + casts)
    assert sure == pytest.approx(expected)


def test_layers_at_the_assumed_rate_and_nothing_else_take_the_whole_step():
    chip, params = CHIPS["h100"], 7 * 10**9
    tokens = 0.7 * chip.rate("bf16") / (6 * params)
    assert linear_part(tokens, params, chip) == pytest.approx(1)
    assert linear_part(tokens / 2, params, chip, share=0.35) == pytest.approx(1)
