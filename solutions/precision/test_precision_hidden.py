"""The hidden tests: 5 of the 20 points, on numbers and sizes drawn at random. Each counts once the
visible ones of its function pass."""

import importlib.util
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.hidden


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


NUMBERS = st.builds(
    lambda part, power: part * 2.0**power,
    st.sampled_from([1.0, -1.0, 1.75, -1.75, 1.7500001, 1.1, 1.99, -1.3]),
    st.integers(-30, 20),
)


@pytest.mark.points(
    1,
    after=("test_delayed_fates", "test_delayed_odd"),
    read="The recipes of 2026",
    hint="try a history of one step, a margin, and an infinity that is about to leave the history",
    seconds=60,
)
@settings(max_examples=60)
@given(
    steps=st.lists(
        st.lists(NUMBERS | st.sampled_from([0.0, -0.0]), max_size=4)
        | st.lists(st.sampled_from([0.0, inf, -inf, 1.0]), max_size=2),
        max_size=9,
    ),
    format=st.sampled_from([(448.0, 2.0**-9), (57344.0, 2.0**-16), (6.0, 0.5)]),
    length=st.integers(1, 5),
    margin=st.integers(0, 3),
)
def test_delayed_any(answers, probe, steps, format, length, margin):
    """Delayed: any steps, histories and margins."""
    got = answers.delayed([list(one) for one in steps], *format, length, margin)
    probe.check_delayed(steps, *format, length, margin, got)


@pytest.mark.points(
    1,
    after="test_formats_real",
    read="When to use which",
    hint="try one sequence, one linear layer, and a memory in which only the smallest fits",
    seconds=60,
)
@settings(max_examples=30)
@given(
    linear=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3),
    layers=st.integers(1, 4),
    others=st.integers(0, 99),
    between=st.integers(0, 40),
    sequences=st.sampled_from([1, 4, 6, 30, 300]),
    length=st.integers(1, 9),
    weight=st.sampled_from([1.0, 0.02, 0.7, 3.1]),
    update=st.sampled_from([1e-2, 1e-3, 1e-5, 1e-6, 1e-8]),
    steps=st.sampled_from([1, 100, 10000]),
    beta2=st.sampled_from([0.9, 0.95, 0.99, 0.999]),
    noise=st.sampled_from([1e-4, 0.01, 0.1]),
    stale=st.sampled_from([0.05, 0.1, 0.5]),
    rate=st.sampled_from([1e4, 1e6, 1e8]),
    gain=st.sampled_from([1.2, 2.0]),
    roomy=st.floats(0, 1),
)
def test_formats_any(answers, probe, linear, layers, others, between, rate, gain, roomy, **run):
    """Formats: any model, chip and run."""
    model = {"layers": layers, "linear": linear, "others": others, "between": between}
    chip = {"memory": 0, "bandwidth": 1e6, "bf16": rate, "fp8": gain * rate}
    sizes = sorted(one[1] for one in probe.all_formats(chip, model, run))
    if sizes:
        chip["memory"] = sizes[int(roomy * (len(sizes) - 1))] * 10 // 9 + 1
    got = answers.formats(dict(chip), dict(model), dict(run))
    told = f"formats({chip}, {model}, {run})"
    probe.check_formats(told, chip, model, run, got)


@pytest.mark.points(
    1,
    tier="processes",
    after="test_linear_casts",
    read="FP8: a scale for each block",
    hint="try a single token, and sizes below a block",
    seconds=60,
)
@settings(max_examples=20)
@given(
    M=st.integers(1, 9),
    N=st.integers(1, 9),
    K=st.integers(1, 9),
    block=st.integers(1, 5),
    wild=st.booleans(),
    zeros=st.booleans(),
    seed=st.integers(0, 999),
)
def test_linear_any(answers, probe, M, N, K, block, wild, zeros, seed):
    """Linear: any sizes."""
    needs("torch")
    case = f"linear: {M=}, {N=}, {K=}, {block=}, {wild=}, {zeros=}, {seed=}"
    probe.check(case, answers.probe.linear(M, N, K, block, wild, zeros, seed))


@pytest.mark.points(
    1,
    after=("test_mxfp4_ends", "test_mxfp4_moved"),
    tier="chip",
    read="FP8: a scale for each block",
    hint="try rows of one number, and a stride beyond n",
    seconds=60,
)
@settings(max_examples=15)
@given(
    rows=st.integers(1, 6),
    n=st.integers(1, 20),
    more=st.integers(0, 3),
    ROWS=st.sampled_from([1, 2, 4]),
    BLOCK=st.sampled_from([2, 4, 8]),
    kind=st.sampled_from(["plain", "ties", "ends", "odd"]),
    seed=st.integers(0, 999),
)
def test_mxfp4_any(answers, probe, rows, n, more, ROWS, BLOCK, kind, seed):
    """MXFP4: any sizes and kinds of number."""
    needs("torch", "triton")
    case = f"mxfp4: {rows=}, {n=}, stride={n + more}, {ROWS=}, {BLOCK=}, {kind} numbers, {seed=}"
    report = answers.probe.mxfp4(rows, n, n + more, ROWS, BLOCK, kind, seed)
    probe.check_mxfp4(case, report, rows, n, n + more)


@pytest.mark.points(
    1,
    after=("test_adamw_exact", "test_adamw_moved"),
    tier="chip",
    read="One pass over memory",
    hint="try fewer weights than a block, and gradients just below the limit",
    seconds=60,
)
@settings(max_examples=12)
@given(
    n=st.integers(1, 40),
    BLOCK=st.sampled_from([1, 4, 16]),
    total=st.sampled_from([0.0, 0.5, 4.0, 1e6, inf, float("nan")]),
    lr=st.sampled_from([0.0, 2.0**-3]),
    decay=st.sampled_from([0.0, 0.1]),
    ties=st.booleans(),
    step=st.integers(1, 9),
    seed=st.integers(0, 999),
)
def test_adamw_any(answers, probe, n, BLOCK, total, lr, decay, ties, step, seed):
    """AdamW: any sizes, limits and steps; each number moved once, or none."""
    needs("torch", "triton")
    case = f"adamw: {n=}, {BLOCK=}, {total=}, {lr=}, {decay=}, {step=}, {seed=}"
    report = answers.probe.adamw(n, BLOCK, total, 1.0, lr, decay, ties, step, seed)
    probe.check_adamw(case, report, -(-n // BLOCK), total < inf)
