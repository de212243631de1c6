"""The hidden tests: 4 of the 20 points, on sizes drawn at random; the seed is printed."""

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.grade import at_most, expect
from weft.plan.memory import MODELS, bandwidth_for, infinity
from weft.plan.offload import Node, placed, streamed

pytestmark = pytest.mark.hidden


def needs_torch():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: needs torch")


@pytest.mark.points(
    0.5, after="test_places_dealt", read="Where the bytes live", hint="try odd numbers", seconds=30
)
@settings(max_examples=30)
@given(
    params=st.integers(1, 10**13),
    strategy=st.sampled_from(["device", "offload", "infinity-disk"]),
    d=st.integers(1, 1000),
)
def test_places_any(answers, params, strategy, d):
    """Places: any model on any number of devices."""
    held = placed(params, strategy, Node("any", d, 1, 1, 1, 1, 1))
    got = answers.places(params, strategy, d)
    for level, shares in (("device", d), ("host", 1), ("disk", 1)):
        right = held[level].total / shares
        expect(f"places({params}, {strategy!r}, {d}): {level}", got[level], right, 1e-9 * params)


@pytest.mark.points(
    0.5,
    after="test_bandwidth_share",
    read="Weights ahead of their layer",
    hint="twice the tokens need half the bandwidth",
    seconds=30,
)
@settings(max_examples=30)
@given(
    batch=st.integers(1, 100),
    seq=st.integers(1, 5000),
    share=st.floats(0.05, 0.995),
    peak=st.sampled_from([1.0, 70e12, 989e12]),
)
def test_bandwidth_any(answers, batch, seq, share, peak):
    """Bandwidth: any batch, any share."""
    got, one = answers.bandwidth(batch, seq, share, peak), infinity(MODELS["0.50T"], 1)
    for flow, rate in zip(("weights", "optimizer"), got, strict=True):
        right = bandwidth_for(one.intensities[flow] * batch * seq / 1024, share, peak)
        expect(f"bandwidth({batch}, {seq}, {share}, {peak:g}): {flow}", rate, right, 1e-9 * right)


@pytest.mark.points(
    1,
    after="test_schedule_overlap",
    read="NVMe: a stream through few buffers",
    hint="try more buffers than pieces, and a single one",
    seconds=30,
)
@settings(max_examples=40)
@given(
    pieces=st.integers(1, 14),
    buffers=st.integers(1, 6),
    times=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
)
def test_schedule_any(answers, probe, pieces, buffers, times):
    """Schedule: any number of pieces and buffers, whatever reading, computing and writing take."""
    case = f"schedule({pieces}, {buffers})"
    order = probe.as_order(case, answers.schedule(pieces, buffers), pieces)
    seconds, held = probe.played(order, times)
    at_most(f"{case} with times {times}: pieces in memory", held, buffers)
    right = streamed(pieces, *times, buffers).makespan
    at_most(f"{case} with times {times}: seconds", seconds, right)


@pytest.mark.points(
    1,
    after=("test_stream_adam_bytes", "test_stream_adam_ahead"),
    tier="processes",
    read="NVMe: a stream through few buffers",
    hint="try a later step, a single piece, and pieces of one number",
    seconds=60,
)
@settings(max_examples=12)
@given(
    cut=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    first=st.integers(1, 2000),
    steps=st.integers(1, 2),
    seed=st.integers(0, 999),
)
def test_stream_adam_any(answers, probe, cut, first, steps, seed):
    """Adam: any pieces, at any step: right, and within its bytes."""
    needs_torch()
    report = answers.probe.adam(cut, steps, seed, first)
    case = f"stream_adam, pieces of {cut}, step {first}"
    probe.check(case, report)
    probe.once(case, report)
    probe.on_its_way(case, report)


@pytest.mark.points(
    1,
    after=("test_tiled_backward_once", "test_tiled_backward_memory"),
    tier="processes",
    read="NVMe: a stream through few buffers",
    hint="try outputs that do not divide, and a tile of one output",
    seconds=60,
)
@settings(max_examples=12)
@given(
    tokens=st.integers(1, 5),
    inputs=st.integers(1, 7),
    outputs=st.integers(1, 20),
    tiles=st.integers(1, 20),
    seed=st.integers(0, 999),
)
def test_tiled_backward_any(answers, probe, tokens, inputs, outputs, tiles, seed):
    """Tiles: any sizes, any number of tiles."""
    needs_torch()
    tiles = min(tiles, outputs)
    report = answers.probe.tiled(tokens, inputs, outputs, tiles, seed)
    probe.check(f"tiled_backward, x [{tokens}, {inputs}], {outputs} outputs in {tiles}", report)
