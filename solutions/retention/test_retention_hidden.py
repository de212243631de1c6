"""The hidden tests: 4.5 of the 20 points, on sizes drawn at random. Each counts once the visible
ones of its function pass, so that no time goes into shrinking what they have shown already."""

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.grade import expect

pytestmark = pytest.mark.hidden
HEADS, WIDTH, CHUNK = st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)
SEED = st.integers(0, 99)


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


@pytest.mark.points(
    1,
    after="test_crossing_moved",
    read="The headline, taken apart",
    hint="try windows longer than T, a single layer, blocks larger than T, more ranks than heads",
    seconds=30,
)
@settings(max_examples=50)
@given(
    layers=st.integers(1, 4),
    full=st.integers(0, 4),
    window=st.integers(1, 20),
    kv=st.integers(1, 5),
    width=st.integers(1, 3),
    size=st.sampled_from([1, 2]),
    block=st.integers(1, 9),
    heads=st.integers(1, 6),
    K=WIDTH,
    V=WIDTH,
    state=st.sampled_from([2, 4]),
    ranks=st.integers(1, 6),
    moved=st.booleans(),
)
def test_crossing_any(answers, probe, layers, full, moved, **sizes):
    """Crossing at any size, to the token."""
    sizes = {"layers": layers, "full": min(full, layers)} | sizes | {"moved": moved}
    case = ", ".join(f"{name}={x}" for name, x in sizes.items())
    expect(f"crossing({case})", answers.crossing(**sizes), probe.crossed(**sizes))


@pytest.mark.points(
    0.5,
    tier="chip",
    after=("test_averaged_range", "test_averaged_slow"),
    read="The norm makes divisors free",
    hint="try one token after none, slow and fast heads side by side, and a long past",
    seconds=60,
)
@settings(max_examples=8)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    seen=st.sampled_from([0, 1, 17, 4000, 60000]),
    powers=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    K=WIDTH,
    V=WIDTH,
    loud=st.sampled_from([1.0, 50.0]),
    seed=SEED,
)
def test_averaged_any(answers, probe, lengths, seen, powers, K, V, loud, seed):
    """Mean at any size and any decay."""
    needs("torch")
    logs = [-(2.0**-power) if power < 40 else 0.0 for power in powers]
    case = f"averaged, pieces of {lengths}, {logs=}, {K=}, {V=}, numbers of about {loud**2:g}"
    report = answers.probe.averaged(lengths, seen, logs, K, V, loud, seed=seed)
    probe.told(case, report["wrong"])


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_turning_bytes",
    read="The rotation: positions without a softmax",
    hint="try chunks longer than the call, one token at a time, and a last chunk of one",
)
@settings(max_examples=8)
@given(
    H=HEADS,
    pieces=st.lists(st.integers(1, 9), min_size=1, max_size=2),
    pairs=st.integers(1, 3),
    V=WIDTH,
    chunk=CHUNK,
    before=st.integers(0, 7),
    seed=SEED,
)
def test_turning_any(answers, probe, H, pieces, pairs, V, chunk, before, seed):
    """Turning at any size, in any pieces."""
    needs("torch")
    K = 2 * pairs
    case = f"turning: {H=}, pieces of {pieces}, {K=}, {V=}, {chunk=}"
    report = answers.probe.turning(H, pieces, K, V, chunk, before=before, seed=seed)
    probe.told(case, report["wrong"])


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after=("test_backward_log", "test_backward_memory"),
    read="Three forms, and the two edges of a chunk",
    hint="try a last chunk of one token, a chunk longer than T, and K and V that differ",
)
@settings(max_examples=8)
@given(H=HEADS, T=st.integers(1, 10), K=WIDTH, V=WIDTH, chunk=CHUNK, seed=SEED)
def test_backward_any(answers, probe, H, T, K, V, chunk, seed):
    """Backward at any size: all five gradients."""
    needs("torch")
    report = answers.probe.backward(H, T, K, V, chunk, seed=seed)
    for wrong in report["wrong"].values():
        probe.told(f"backward: {H=}, {T=}, {K=}, {V=}, {chunk=}", wrong)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_step_moves",
    read="The idea: each head has a half-life",
    hint="try empty places at both ends, fresh sequences of several tokens, blocks of one column",
)
@settings(max_examples=8)
@given(
    places=st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=4),
    H=HEADS,
    K=st.sampled_from([1, 2, 4]),
    V=st.sampled_from([1, 4, 8]),
    BLOCK=st.sampled_from([1, 2, 4]),
    seed=SEED,
)
def test_step_any(answers, probe, places, H, K, V, BLOCK, seed):
    """Kernel at any size: right, and each state moved once."""
    needs("torch", "triton")
    counts, fresh = [n for n, _ in places], [i for i, (_, new) in enumerate(places) if new]
    BLOCK = min(BLOCK, V)
    case = f"step: places with {counts} tokens, fresh: {fresh}, {H=}, {K=}, {V=}, {BLOCK=}"
    report = answers.probe.step(counts, fresh, H, K, V, BLOCK, seed=seed)
    probe.told(case, report["wrong"])
    probe.check_moved(case, report, fresh, V // BLOCK)
