"""The plan of offloading: streams in closed form and simulated, places, rates, tiles."""

from functools import partial
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.plan.memory.config import of_deepspeed, places
from weft.plan.memory.states import model_states
from weft.plan.memory.zero_infinity import MODELS, infinity
from weft.plan.offload import stream as offload
from weft.plan.offload.host import (
    DELAYS,
    HOSTS,
    Host,
    adam_time,
    computing_share,
    tokens_for,
    update_time,
)
from weft.plan.offload.places import (
    INFINITY,
    LEVELS,
    MACHINES,
    STRATEGIES,
    Node,
    carried,
    largest,
    placed,
)
from weft.plan.offload.rates import V100_REACHES, share_left, trillion
from weft.plan.offload.stream import period, ramp, step_time, streamed
from weft.plan.offload.tiles import tile_bytes, tiles_for
from weft.plan.offload.update import LANES, WAYS, OffloadedStep, step_period, step_spans

TIMES = list(product((0, 1, 2, 5), repeat=3))
KNOWN = [(1, 1), (1, 2), (2, 1), (3, 2)]  # buffers and lanes with a closed form


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("buffers", "lanes"), KNOWN)
def test_the_closed_form_is_the_simulation(buffers, lanes):
    for pieces in (1, 2, 3, 4, 7):
        for times in TIMES:
            stream = streamed(pieces, *times, buffers, lanes)
            assert step_time(pieces, *times, buffers, lanes) == stream.makespan, (pieces, times)


@pytest.mark.parametrize(("buffers", "lanes"), [(2, 1), (3, 2)])
def test_the_ramp_is_at_most_one_pieces_input_and_output(buffers, lanes):
    for times in TIMES:
        read, compute, write = times
        for pieces in (1, 2, 3, 9):
            rest = ramp(pieces, *times, buffers, lanes)
            assert 0 <= rest <= read + write + (compute if lanes == 2 else 0)
            if compute >= read + write:
                assert rest == read + write
            elif lanes == 1 and pieces > 1 and compute <= min(read, write):
                assert rest == 0  # the disk never stops


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("buffers", [1, 2, 3, 4, 5])
def test_a_long_stream_settles_at_its_period(buffers, lanes):
    for times in TIMES:
        more = 60  # pieces: a multiple of every number of buffers
        some, many = (streamed(n, *times, buffers, lanes).makespan for n in (60, 60 + more))
        assert many - some == pytest.approx(more * period(*times, buffers, lanes))


def numbers(pieces):
    return st.lists(st.integers(0, 9), min_size=pieces, max_size=pieces)


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    pieces=st.integers(1, 9),
    buffers=st.integers(1, 4),
    lanes=st.sampled_from([1, 2]),
)
def test_any_stream_keeps_the_rules(data, pieces, buffers, lanes):
    read, compute, write = (data.draw(numbers(pieces)) for _ in range(3))
    stream = streamed(pieces, read, compute, write, buffers, lanes)
    at = {(m.kind, m.piece): m for m in stream.moves}
    assert len(at) == len(stream.moves) == 3 * pieces
    for i in range(pieces):
        assert at["read", i].end <= at["compute", i].start
        assert at["compute", i].end <= at["write", i].start
        if i >= buffers:
            assert at["write", i - buffers].end <= at["read", i].start
        for kind, times in (("read", read), ("compute", compute), ("write", write)):
            assert at[kind, i].end - at[kind, i].start == times[i]
    disk = [("read", "write")] if lanes == 1 else [("read",), ("write",)]
    for lane in (*disk, ("compute",)):
        spans = sorted(m[2:] for m in stream.moves if m.kind in lane)
        assert all(one[1] <= two[0] for one, two in pairwise(spans))
    assert stream.bound <= stream.makespan <= sum(map(sum, (read, compute, write)))
    assert stream.alive() <= min(buffers, pieces)
    if lanes == 2:  # on one lane more reads ahead can keep a write waiting
        more = streamed(pieces, read, compute, write, buffers + 1, lanes)
        assert more.makespan <= stream.makespan
    sizes = data.draw(st.lists(st.integers(1, 50), min_size=pieces, max_size=pieces))
    assert max(sizes) <= stream.alive(sizes)
    assert stream.alive(sizes) <= sum(sorted(sizes)[-buffers:])
    if min(read + compute + write) > 0:
        assert stream.alive(sizes) >= max(sum(p) for p in pairwise([*sizes, 0])) or buffers == 1


def test_two_buffers_are_enough_for_one_lane_and_three_for_two():
    times = 2, 2, 2
    assert period(*times, 2, 1) == period(*times, 9, 1) == 4
    assert period(*times, 2, 2) == 3 and period(*times, 3, 2) == period(*times, 9, 2) == 2


def test_a_stream_says_what_is_busy():
    stream = streamed(3, read=[1, 2, 3], compute=4, write=[2, 0, 1])
    assert stream.busy == {"read": 6, "compute": 12, "write": 3}
    assert stream.bound == 12 and streamed(3, 5, 1, 2, lanes=2).bound == 15
    assert streamed(3, 5, 1, 2).bound == 21
    assert stream.alive([10, 20, 40]) == 60  # pieces 1 and 2; 10 and 20 before that


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, 1, 1, 1), "pieces is 0"),
        ((2.0, 1, 1, 1), "pieces is 2.0"),
        ((2, -1, 1, 1), "read is -1"),
        ((2, 1, float("nan"), 1), "compute is nan"),
        ((2, 1, 1, True), "write is True"),
        ((2, [1], 1, 1), "read has 1 times, must have 2"),
        ((2, 1, 1, 1, 0), "buffers is 0"),
        ((2, 1, 1, 1, 2, 3), "lanes is 3, must be 1 or 2"),
    ],
)
def test_streams_that_are_none(given, words):
    with pytest.raises(ValueError, match=words):
        streamed(*given)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf"), "1", None, [1, 1, 1, 1]])
def test_closed_forms_take_times_only(wrong):
    for form in (period, partial(step_time, 4), partial(ramp, 4)):
        for kind in ("read", "compute", "write"):
            times = {"read": 1.0, "compute": 1.0, "write": 1.0} | {kind: wrong}
            rule = f"{kind} is .*, must be a finite number of at least 0"
            with pytest.raises(ValueError, match=rule):
                form(**times)
        with pytest.raises(ValueError, match="lanes is 3, must be 1 or 2"):
            form(read=1, compute=1, write=1, lanes=3)


def test_what_has_no_closed_form():
    with pytest.raises(ValueError, match="buffers is 2 with lanes = 2"):
        step_time(4, 1, 1, 1, buffers=2, lanes=2)
    with pytest.raises(ValueError, match="each has 2 sizes, must have 3"):
        streamed(3, 1, 1, 1).alive([1, 2])


# --- places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["mixed", "fp32", INFINITY])
def test_every_byte_is_somewhere(recipe):
    per = sum(INFINITY) if recipe == INFINITY else 16
    for name, node, nodes in product(STRATEGIES, MACHINES.values(), (1, 3)):
        held = placed(3e9, name, node, nodes, recipe)
        total = sum(held[level].total for level in LEVELS) * nodes
        stage, copies = STRATEGIES[name].stage, nodes * node.devices
        weight = 4 if recipe == "fp32" else 2
        gradient = weight
        extra = {0: per, 2: weight, 3: 0}[stage]  # what every device has a copy of
        assert total == pytest.approx(3e9 * (per + extra * (copies - 1)))
        assert gradient == weight


def test_levels_are_those_of_zero_and_of_deepspeed():
    node = Node("any", 4, 1, 1, 1, 1, 1)
    for name, stage in (("device", 0), ("zero3", 3)):
        each = model_states(7e9, 4 * 2, stage)
        held = placed(7e9, name, node, nodes=2)["device"]
        assert held.total == pytest.approx(4 * each.total)
    config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
    config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    theirs, ours = places(of_deepspeed(config), 7e9, 4), placed(7e9, "offload", node)
    assert ours["device"].total == 4 * theirs["gpu"].total
    assert ours["host"].total == 4 * theirs["cpu"].total
    config["zero_optimization"] |= {"stage": 3, "offload_param": {"device": "nvme"}}
    config["zero_optimization"]["offload_optimizer"] = {"device": "nvme"}
    theirs, ours = places(of_deepspeed(config), 7e9, 4), placed(7e9, "infinity-disk", node)
    assert ours["disk"].total == pytest.approx(4 * theirs["nvme"].total)
    assert ours["device"].total == theirs["gpu"].total == 0


def test_the_largest_model_fits_and_one_more_does_not():
    for name, node, nodes, kept in product(STRATEGIES, MACHINES.values(), (1, 5), (0, 3e9)):
        most = largest(name, node, nodes, kept=kept)
        for params, fits in ((most, True), (most + 2, False)):
            if not params:
                continue
            held = placed(params, name, node, nodes)
            free = {level: node.room(level) for level in LEVELS}
            free["device"] -= kept * node.devices
            ok = all(held[level].total <= free[level] * (1 + 1e-9) + 1 for level in LEVELS)
            exact = all(held[level].total <= free[level] * (1 + 1e-15) for level in LEVELS)
            assert ok if fits else not exact, (name, node.name, params)


def test_what_the_papers_say_fits():
    v100 = MACHINES["one GPU of a DGX-2"]
    assert largest("device", v100) == 2 * 10**9  # PyTorch trained 1.4 of it
    assert largest("offload", v100) == 16 * 10**9 > 13e9  # and ZeRO-Offload 13
    assert largest("infinity-disk", MACHINES["DGX-2"], recipe=INFINITY) > 1.01e12
    assert largest("offload", MACHINES["DGX-2"]) < largest("zero3", MACHINES["DGX-2"])
    assert largest("infinity-host", MACHINES["DGX-2"]) < 1e11
    assert largest("infinity-disk", MACHINES["DGX-2"], nodes=32, recipe=INFINITY) > 32e12
    bare = Node("no host", 1, 32e9, 0, 0, 16e9, 0)
    assert largest("offload", bare) == 0  # there is no host memory to offload to


def test_bytes_over_the_links():
    assert carried("device") == carried("zero3") == {"host": (0, 0), "disk": (0, 0)}
    down, up = carried("offload")["host"]
    assert down + up == 4  # Ren et al. 2021: the least that any strategy of the kind can have
    paper = carried("infinity-disk", INFINITY)
    needs = infinity(MODELS["1.01T"], batch=3)
    per = {k: needs.flops / needs.params / v for k, v in needs.intensities.items()}
    assert sum(paper["host"]) == per["weights"] == 8  # 3 times up, gradients down
    assert sum(paper["disk"]) == per["optimizer"] + 8 + 2 + 2  # new weights, gradients once more
    assert carried("infinity-disk", passes=2)["host"] == (2, 4)
    once, more = carried("infinity-disk"), carried("infinity-disk", microbatches=5)
    assert more["host"] == (5 * 2, 5 * 6) == tuple(5 * n for n in once["host"])
    assert more["disk"] == (5 * 2 + 2 + 12, 5 * (6 + 2) + 12)  # the state once, however many
    assert carried("offload", microbatches=5)["host"] == (5 * 2, 2)
    assert carried("infinity-host")["disk"] == (0, 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: placed(0, "device", MACHINES["DGX-2"]), "params is 0"),
        (lambda: placed(1.5, "device", MACHINES["DGX-2"]), "params is 1.5"),
        (lambda: placed(9, "cloud", MACHINES["DGX-2"]), "strategy is 'cloud'"),
        (lambda: placed(9, "device", MACHINES["DGX-2"], 0), "nodes is 0"),
        (lambda: placed(9, "device", MACHINES["DGX-2"], recipe="int1"), "recipe is 'int1'"),
        (lambda: placed(9, "device", MACHINES["DGX-2"], recipe=(2, 2)), "recipe has 2"),
        (lambda: placed(9, "device", MACHINES["DGX-2"], recipe=(2, 2, -1)), "optimizer is -1"),
        (lambda: largest("device", MACHINES["DGX-2"], kept=-1), "kept is -1"),
        (lambda: carried("infinity-disk", passes=0), "passes is 0"),
        (lambda: Node("n", 0, 1, 1, 1, 1, 1), "devices is 0"),
        (lambda: Node("n", 1, 1, -1, 1, 1, 1), "host is -1"),
    ],
)
def test_places_that_are_none(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# --- rates ----------------------------------------------------------------------------------------


def test_the_papers_statements_about_bandwidth():
    shape = MODELS["1.01T"]
    assert share_left(shape, 1, "weights", 70e9, V100_REACHES) > 0.5
    assert share_left(shape, 2, "optimizer", 1.5e12, V100_REACHES) == pytest.approx(
        0.9165, abs=1e-4
    )
    assert share_left(MODELS["0.10T"], 7, "activations", 2e9, V100_REACHES) > 0.5


def test_a_trillion_on_512():
    needs = trillion(512, 2)
    assert needs.states / 2**40 == pytest.approx(18.31, abs=0.01)
    assert needs.each * 512 == needs.states
    assert 2e9 < needs.needs["optimizer"] < 3e9  # the paper asks for 3 GB/s of each device
    assert trillion(1, 2).needs["optimizer"] == pytest.approx(512 * needs.needs["optimizer"])
    assert trillion(512, 4).needs["weights"] == pytest.approx(needs.needs["weights"] / 2)
    assert needs.compute == pytest.approx(8 * needs.params * 2 * 1024 / V100_REACHES)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: share_left(MODELS["1.01T"], 1, "logits", 1, 1), "flow is 'logits'"),
        (lambda: share_left(MODELS["1.01T"], 1, "weights", 0, 1), "bandwidth is 0"),
        (lambda: trillion(model="2T"), "model is '2T'"),
        (lambda: trillion(devices=0), "devices is 0"),
        (lambda: trillion(peak=float("inf")), "peak is inf"),
    ],
)
def test_rates_that_are_none(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# --- the host -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("way", DELAYS)
def test_so_many_tokens_leave_the_share(name, way):
    host = HOSTS[name]
    for share, flops in product((0.3, 0.8, 0.95), (4e13, 4e14)):
        tokens = tokens_for(share, host, flops, way)
        assert computing_share(tokens, host, flops, way) == pytest.approx(share)
    assert computing_share(1e12, host, 1e14, "delayed") == 1


def test_the_cost_of_an_update_is_that_of_the_simulated_step():
    """A step with all in one layer and one microbatch: C and U, and the GPU's share of both."""
    host, flops, params, tokens = HOSTS["GH200"], 4e14, 13e9, 8192
    compute = 8 * params * tokens / flops
    adam, up = adam_time(params, host), 2 * params / host.link
    assert update_time(params, host) == pytest.approx(adam + up)
    step = OffloadedStep(1, 1, compute / 4, 3 * compute / 4, down=0, adam=adam, up=up)
    share = computing_share(tokens, host, flops)
    assert step.compute / step_period("after", step) == pytest.approx(share)


def test_the_published_update_is_about_the_plans():
    """Ren et al. 2021: 2.57 s for ten billion parameters on a DGX-2."""
    assert adam_time(10e9, HOSTS["DGX-2"]) == pytest.approx(2.57, rel=0.1)
    assert adam_time(10e9, HOSTS["DGX-2"], 1.0) < 2.57


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Host("none", 0, 1e9, 1e9), "devices is 0"),
        (lambda: Host("slow", 1, 0, 1e9), "memory is 0"),
        (lambda: adam_time(0, HOSTS["desktop"]), "params is 0"),
        (lambda: adam_time(1e9, "desktop"), "host is 'desktop'"),
        (lambda: update_time(1e9, HOSTS["desktop"], 0), "reached is 0"),
        (lambda: computing_share(0, HOSTS["desktop"], 1e14), "tokens is 0"),
        (lambda: computing_share(8, HOSTS["desktop"], 1e14, "tea"), "way is 'tea'"),
        (lambda: tokens_for(1, HOSTS["desktop"], 1e14), "share is 1"),
        (lambda: tokens_for(1.5, HOSTS["desktop"], 1e14, "delayed"), "share is 1.5"),
        (lambda: tokens_for(0.5, HOSTS["desktop"], 1e14, "tea"), "way is 'tea'"),
    ],
)
def test_hosts_that_are_none(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# --- tiles ----------------------------------------------------------------------------------------


def test_tiles_divide_the_working_memory():
    for name, shape in MODELS.items():
        D = shape.width
        assert tile_bytes(D, 4 * D) == infinity(shape, 1).model_working, name
    assert tile_bytes(3, 10, tiles=4, size=4) == 2 * 4 * 3 * 3  # 3, 3, 2, 2 outputs
    assert tile_bytes(7, 5, tiles=5) == 2 * 2 * 7


@pytest.mark.parametrize("size", [2, 4])
def test_as_few_tiles_as_fit(size):
    for inputs, outputs in ((3, 10), (8, 8), (5, 1)):
        for budget in range(2 * size * inputs, 2 * size * inputs * outputs + 9, 7):
            tiles = tiles_for(inputs, outputs, budget, size)
            assert tile_bytes(inputs, outputs, tiles, size) <= budget
            assert tiles == 1 or tile_bytes(inputs, outputs, tiles - 1, size) > budget


def test_tiles_that_are_none():
    with pytest.raises(ValueError, match="budget is 11 bytes, must be at least 12"):
        tiles_for(3, 9, 11)
    with pytest.raises(ValueError, match="tiles is 6, must be at most the 5 outputs"):
        tile_bytes(3, 5, tiles=6)
    with pytest.raises(ValueError, match="inputs is 0"):
        tile_bytes(0, 5)


def test_one_door():
    assert all(hasattr(offload, name) for name in offload.__all__)


# --- what the plan says is what runs --------------------------------------------------------------


def test_a_step_of_adam_moves_what_the_plan_says(tmp_path):
    torch = pytest.importorskip("torch", reason="the optimizer's")
    from weft.run.offload.adam import StreamingAdam
    from weft.run.offload.store import Store

    weights = [torch.nn.Parameter(torch.ones(n)) for n in (64 * 5, 7)]
    numel, piece = 64 * 5 + 7, 64
    with Store(tmp_path / "states", budget=2**20) as store:
        adam = StreamingAdam(weights, store, piece=piece)
        read, written = store.read_bytes, store.written_bytes
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        adam.step()
        moved = store.written_bytes - written, store.read_bytes - read
    # Weights and gradients of 4 bytes each stay in memory here.
    down, up = (every - 4 - 4 for every in carried("infinity-disk", (4, 4, 12), passes=1)["disk"])
    assert moved == (down * numel, up * numel) == (12 * numel, 12 * numel)
    assert streamed(-(-numel // piece), 1, 1, 1, 3, 2).alive(12 * piece) == 3 * 12 * piece


@pytest.mark.parametrize(("outputs", "tiles"), [(11, 4), (8, 8), (9, 1)])
def test_the_layers_tiles_are_the_plans(outputs, tiles):
    pytest.importorskip("torch", reason="the layer's")
    from weft.run.offload.tiles import TiledLinear

    layer = TiledLinear(5, outputs, tiles)
    largest_tile = max(tile.weight.nbytes for tile in layer.tiles)
    assert 2 * largest_tile == tile_bytes(5, outputs, tiles, size=4)


# --- when the host updates ------------------------------------------------------------------------

TIME = st.sampled_from([0, 1, 2, 3, 5, 9])


@settings(max_examples=200, deadline=None)
@given(layers=st.integers(1, 4), microbatches=st.integers(1, 4), times=st.tuples(*[TIME] * 5))
def test_the_period_of_an_offloaded_step_is_the_simulations(layers, microbatches, times):
    step = OffloadedStep(layers, microbatches, *times)
    for way in WAYS:
        ends = {}
        for (_, i, _, _), (_, _, end) in step_spans(way, step, 24).items():
            ends[i] = max(end, ends.get(i, 0))
        # A delayed update's steps may alternate between two lengths.
        mean = (ends[23] - ends[11]) / 12
        assert mean == pytest.approx(step_period(way, step)), way
    after, layerwise, delayed = (step_period(way, step) for way in WAYS)
    assert step.compute <= delayed <= layerwise <= after


@settings(max_examples=60, deadline=None)
@given(layers=st.integers(1, 3), microbatches=st.integers(1, 3), times=st.tuples(*[TIME] * 5))
def test_no_update_begins_before_its_last_gradient(layers, microbatches, times):
    final, steps = microbatches - 1, 4
    for way in WAYS:
        at = step_spans(way, OffloadedStep(layers, microbatches, *times), steps)
        for i, layer in product(range(steps), range(layers)):
            waits = range(layers) if way != "layerwise" else [layer]
            start = at["adam", i, final, layer][1]
            assert all(at["down", i, j, n][2] <= start for j in range(microbatches) for n in waits)
            used = i + (2 if way == "delayed" else 1)
            if used < steps:
                assert at["up", i, final, layer][2] <= at["forward", used, 0, 0][1]
        for lane in LANES:
            spans = sorted(span[1:] for span in at.values() if span[0] == lane)
            assert all(one[1] <= two[0] for one, two in pairwise(spans))


def test_accumulation_makes_the_update_rarer_and_hides_none_of_it():
    periods = [step_period("after", OffloadedStep(4, m, 1, 2, 1, 3, 1)) for m in (1, 2, 8)]
    waits = [t - 12 * m for t, m in zip(periods, (1, 2, 8), strict=True)]
    assert waits == [14, 14, 14]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: OffloadedStep(0, 1, 1, 1, 1, 1, 1), "layers is 0"),
        (lambda: OffloadedStep(1, 1, 1, -1, 1, 1, 1), "backward is -1"),
        (lambda: step_period("early", OffloadedStep(1, 1, 1, 1, 1, 1, 1)), "way is 'early'"),
        (lambda: step_spans("after", OffloadedStep(1, 1, 1, 1, 1, 1, 1), 0), "steps is 0"),
    ],
)
def test_an_offloaded_step_names_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()
