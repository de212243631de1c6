"""The hidden tests: 5 of the 20 points, on sizes drawn at random. Each counts once the visible ones
of its function pass, so that no time goes into shrinking what they have shown already."""

import importlib.util
import random
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.hidden
LEVELS, DO = "A roof for each level: L2 and the network", "What to do about each wall"
PASSES, FUSING = "Three passes, two, one", "Why fusing helps"
SMALL, FEW = st.integers(1, 6), st.integers(1, 4)


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {' and '.join(modules)}")


@pytest.mark.points(
    1,
    after="test_walk_groups",
    read=LEVELS,
    hint="try a last group with fewer rows, a last wave with fewer programs, and equal bytes",
)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    steps=FEW,
    a=FEW,
    b=FEW,
    room=st.integers(0, 40),
    wave=st.integers(1, 12),
    groups=st.lists(st.integers(1, 12), min_size=1, max_size=5, unique=True),
)
def test_walk_any(answers, probe, rows, columns, steps, a, b, room, wave, groups):
    """Walk: any tiles in any cache."""
    case = {"rows": rows, "columns": columns, "steps": steps, "a": a, "b": b}
    case |= {"cache": max(a, b) + room, "wave": wave}
    probe.check_walk(case, groups, answers.walk(*case.values(), list(groups)))


@pytest.mark.points(
    1,
    after="test_stalls_queue",
    read="The idea: two jobs, two speeds",
    hint="try a launch that takes no time, a result that is read in a full queue, equal times",
)
@given(
    kernels=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=9),
    launch=st.integers(0, 6),
    depth=SMALL,
    rate=FEW,
    bandwidth=FEW,
    start=st.integers(0, 4),
)
def test_stalls_any(answers, probe, kernels, launch, depth, rate, bandwidth, start):
    """Stalls: any queue."""
    got = answers.stalls(list(kernels), launch, depth, rate, bandwidth, start)
    probe.check_stalls(kernels, launch, depth, rate, bandwidth, start, got)


@pytest.mark.points(
    1,
    after="test_tiling_real",
    read=DO,
    hint="try one number more than a tile or a slice has, and a chip with few multiprocessors",
)
@settings(max_examples=40)
@given(
    m=st.integers(1, 700),
    n=st.integers(1, 700),
    k=st.integers(1, 3000),
    sms=st.integers(1, 80),
    shared=st.sampled_from([16384, 65535, 65536, 166912, 232448]),
    rate=st.sampled_from([1e6, 1e8]),
    l2=st.sampled_from([1e5, 1e6, 1e7]),
    memory=st.sampled_from([1e5, 1e6]),
    start=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_tiling_any(answers, probe, m, n, k, **chip):
    """Tiling: any matmul on any chip."""
    probe.check_tiling(m, n, k, chip, answers.tiling(m, n, k, dict(chip)))


@pytest.mark.points(
    1,
    after="test_entropy_once",
    read=PASSES,
    hint="try the least memory, rows that rise and rows that fall, far from 0, and -inf in front",
    seconds=60,
)
@settings(max_examples=20)
@given(
    rows=st.integers(1, 3),
    n=st.integers(1, 700),
    capacity=st.integers(512, 3000),
    masked=st.integers(0, 699),
    rise=st.sampled_from([-1.0, -0.125, 0.0, 0.125, 1.0]),
    seed=st.integers(0, 999),
)
def test_entropy_any(answers, probe, rows, n, capacity, masked, rise, seed):
    """Entropy of any rows in any memory, each number read once."""
    needs("torch")
    dice, masked = random.Random(seed), min(masked, n - 1)
    x = [
        [-inf if j < masked else dice.randint(-24, 24) / 8 + rise * j for j in range(n)]
        for _ in range(rows)
    ]
    case = f"entropy of {rows} x {n}, {masked} -inf in front, {rise=}, {capacity=}, {seed=}"
    got = answers.probe.entropy(x, capacity)
    probe.check_entropy(case, x, got)
    probe.check_moved(case, got, {"x": 1}, {"out": 1})


@pytest.mark.points(
    1,
    tier="chip",
    after="test_swiglu_backward_once",
    read=FUSING,
    hint="try an F just below, at and just above a multiple of BLOCK",
    seconds=60,
)
@settings(max_examples=15)
@given(
    rows=st.integers(1, 4),
    F=st.integers(1, 70),
    BLOCK=st.sampled_from([1, 2, 8, 32]),
    dtype=st.sampled_from(["float16", "float32"]),
    steep=st.sampled_from([4, 100, 1000]),
    seed=st.integers(0, 999),
)
def test_swiglu_backward_any(answers, probe, rows, F, BLOCK, dtype, steep, seed):
    """Kernel at any size: right, and everything moved once, by its program."""
    needs("torch", "triton")
    dice = random.Random(seed)
    eighths = lambda most: dice.randint(-8 * most, 8 * most) / 8  # noqa: E731
    gates = lambda: eighths(4) if dice.random() < 0.5 else float(dice.randint(-steep, steep))  # noqa: E731
    h = [[gates() for _ in range(F)] + [eighths(4) for _ in range(F)] for _ in range(rows)]
    dy = [[eighths(4) for _ in range(F)] for _ in range(rows)]
    case = f"swiglu_backward: {rows} rows, {F=}, {BLOCK=}, {dtype}, gates up to {steep}, {seed=}"
    got = answers.probe.swiglu_backward(h, dy, dtype, BLOCK)
    probe.check_gradients(case, h, dy, dtype, got)
    probe.check_moved(case, got, {"h": 1, "dy": 1}, {"h": 1, "y": 1})
    probe.check_own(case, got)
