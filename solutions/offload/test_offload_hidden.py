"""The hidden tests: 5 of the 20 points, on sizes drawn at random; the seed is printed."""

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.hidden


def needs_torch():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: needs torch")


@pytest.mark.points(
    1,
    after="test_pinned_several",
    read="Mistakes",
    hint="try more buffers than tensors, and a large alignment",
    seconds=30,
)
@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    align=st.sampled_from([1, 2, 8, 12, 64]),
    most=st.integers(1, 9),
)
def test_pinned_any(answers, probe, sizes, align, most):
    """Pinned: any tensors, any alignment, any number of buffers."""
    probe.check_pinned(sizes, align, most, answers.pinned(list(sizes), align, most))


NUMBERS = st.integers(1, 6)


@pytest.mark.points(
    1,
    after="test_leave_best",
    read="Activations: offload or recompute",
    hint="try room for hardly more than the largest layer, and copies that are slow for some",
    seconds=30,
)
@settings(max_examples=40)
@given(
    layers=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=6),
    room=st.integers(3, 24),
)
def test_leave_any(answers, probe, layers, room):
    """Leave: any layers, any room."""
    probe.check_leave(layers, room, answers.leave(list(layers), room))


@pytest.mark.points(
    1,
    after="test_design_real",
    read="When to use it, and when not",
    hint="try a node with one GPU, and memories that few choices fit into",
    seconds=30,
)
@settings(max_examples=60)
@given(
    gpus=st.integers(1, 4),
    micros=st.sampled_from([1, 2, 3, 4, 6]),
    rate=st.sampled_from([1e3, 1e5, 1e7]),
    link=st.sampled_from([50.0, 500.0]),
    inside=st.sampled_from([50.0, 5000.0]),
    touch=st.sampled_from([100.0, 1e4]),
    drive=st.sampled_from([100.0, 1e4]),
    memory=st.integers(500, 12000),
    ram=st.integers(100, 8000),
    disk=st.integers(0, 6000),
    layers=st.integers(1, 4),
    params=st.integers(50, 150),
    width=st.integers(1, 6),
    kept=st.integers(12, 60),
    tokens=st.integers(1, 12),
)
def test_design_any(answers, probe, gpus, micros, layers, params, width, kept, tokens, **node):
    """Design: any model on any node."""
    model = {"layers": layers, "params": params, "width": width, "kept": kept, "tokens": tokens}
    node, batch = {"gpus": gpus} | node, gpus * micros
    told = f"design({node}, {model}, {batch=})"
    got = answers.design(dict(node), dict(model), batch)
    probe.check_design(told, node, model, batch, got)


@pytest.mark.points(
    0.5,
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
    0.5,
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


@pytest.mark.points(
    1,
    tier="chip",
    after="test_two_way_overlap",
    read="The program",
    hint="try one layer, two layers, and a layer that takes long where others do not",
    seconds=30,
)
@settings(max_examples=30)
@given(
    layers=st.integers(1, 9),
    data=st.data(),
)
def test_two_way_any(answers, probe, layers, data):
    """Two-way: any number of layers, each with its own seconds."""
    each = st.lists(st.integers(1, 9), min_size=layers, max_size=layers)
    times = [data.draw(each) for _ in range(5)]
    case = f"two_way, seconds of fill, up, matmul, down and add for each layer: {times}"
    report = answers.probe.two_way(times)
    probe.check_device(case, report)
    probe.check_buffers(case, report)
