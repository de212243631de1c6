"""The hidden tests: 5 of the 20 points, on sizes drawn at random. Each counts once the visible ones
of its function pass, so that no time goes into shrinking what they have shown already."""

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.hidden


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


@pytest.mark.points(
    1,
    after="test_widest_real",
    read="A design problem, worked",
    hint="try layers that `every` does not divide, chats of one token, and a chip too small",
)
@given(
    layers=st.integers(1, 12),
    every=st.integers(1, 5),
    kv_heads=st.integers(1, 3),
    head=st.integers(1, 9),
    width=st.integers(1, 40),
    taps=st.integers(1, 5),
    params=st.integers(1, 10**5),
    lengths=st.lists(st.integers(1, 900), min_size=1, max_size=5),
    roomy=st.floats(0.5, 1.5),
    fast=st.floats(0.5, 1.5),
    rate=st.sampled_from([1e10, 1e13]),
    aim=st.integers(1, 6),
)
def test_widest_any(answers, probe, lengths, roomy, fast, rate, aim, **model):
    """Widest window for any model and any chats."""
    chip = {"memory": 0, "bandwidth": 1e10, "rate": rate}
    kept, step = probe.told_window(chip, model, lengths, 128 * aim)
    chip["memory"] = int((kept + 2 * model["params"]) / 0.9 * roomy)
    seconds = step * fast * (1 + 1e-6)  # and no window's to the last digit
    case = f"widest({chip}, {model}, {lengths}, {seconds=})"
    got = answers.widest(chip, model, list(lengths), seconds)
    probe.check_widest(case, got, probe.most_window(chip, model, lengths, seconds))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_packed_operations",
    read="Why these two lines",
    hint="try T of 1 and one above a power of two, and documents of one token",
)
@settings(max_examples=12)
@given(
    T=st.integers(1, 70),
    D=st.integers(1, 9),
    begins=st.lists(st.integers(0, 69), max_size=6),
    carried=st.booleans(),
    seed=st.integers(0, 999),
)
def test_packed_any(answers, probe, T, D, begins, carried, seed):
    """Packed documents of any lengths."""
    needs("torch")
    begins = sorted({begin for begin in begins if begin < T})
    case = f"packed: {T=}, {D=}, documents begin at {begins}" + ", with a state" * carried
    probe.check(case, answers.probe.packed(T, D, begins, carried, seed=seed))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_extend_room",
    read="The window and its ring",
    hint="try a window of 1, pieces one longer than the window, and a ring that is half full",
)
@settings(max_examples=12)
@given(
    pieces=st.lists(st.integers(1, 14), min_size=1, max_size=4),
    W=st.integers(1, 9),
    K=st.integers(1, 5),
    V=st.integers(1, 5),
    slope=st.sampled_from([0.0, 0.25, 2.0]),
    first=st.integers(0, 20),
    seed=st.integers(0, 999),
)
def test_extend_any(answers, probe, pieces, W, K, V, slope, first, seed):
    """Pieces of any lengths through rings of any size."""
    needs("torch")
    case = f"extend: tokens {first} on in pieces of {pieces}, {W=}, {K=}, {V=}, {slope=}"
    probe.check(case, answers.probe.extend(pieces, W, K, V, slope, first, seed))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=90,
    after="test_convolve_rounds",
    read="The layer, and its gates on several ranks",
    hint="try ranks without tokens, more taps than tokens, and documents of one token",
)
def test_convolve_any(answers, probe, dice):
    """Convolve on 2 to 4 ranks: right, with no row too many, in one round."""
    needs("torch")
    cases = []
    for n in (2, 3, 4):
        lengths = [dice.choice((0, 1, 2, 5, 8)) for _ in range(n)]
        lengths[dice.randrange(n)] += 1
        begins = sorted({0} | {dice.randrange(sum(lengths)) for _ in range(dice.randint(0, 3))})
        cases.append((lengths, begins, dice.randint(1, 6), dice.randint(1, 4)))
    measured = answers.probe.convolve(cases, dice.randrange(1 << 30))
    for case, ranks in zip(cases, measured, strict=True):
        probe.check_convolved(case, ranks)
        probe.check_halo(case, ranks)
        probe.check_rounds(case, ranks)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_scan_back_loads",
    read="The scan, in parallel or not",
    hint="try one channel, one token, and blocks wider than D",
)
@settings(max_examples=10)
@given(
    B=st.integers(1, 3),
    T=st.integers(1, 6),
    D=st.integers(1, 9),
    BLOCK=st.sampled_from([2, 4, 8]),
    begins=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=4),
    seed=st.integers(0, 999),
)
def test_scan_back_any(answers, probe, B, T, D, BLOCK, begins, seed):
    """Kernel at any size: right, everything loaded once and stored once."""
    needs("torch", "triton")
    begins = tuple(sorted((b, t) for b, t in begins if b < B and t < T))
    case = f"scan_back: {B=}, {T=}, {D=}, {BLOCK=}, documents begin at {list(begins)}"
    report = answers.probe.scan_back(B, T, D, BLOCK, begins, seed)
    probe.check_loads(case, report, (B, T, D, BLOCK), begins)
