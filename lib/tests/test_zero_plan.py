"""ZeRO in plan: bytes sent are those of the ring's steps, bytes kept add up over ranks, and a step
takes what the closed form says. What a simulated step has alive never exceeds what is promised."""

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.plan.collectives.boxes import BOXES
from weft.plan.collectives.price import chunks, rails_seconds, volume
from weft.plan.collectives.steps import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from weft.plan.hardware import CHIPS, LINKS, Link
from weft.plan.memory.states import STAGES, model_states
from weft.plan.precision.state import RECIPES
from weft.plan.shape.model import SHAPES
from weft.plan.zero import overlap as overlap
from weft.plan.zero.kept import alive
from weft.plan.zero.overlap import (
    Durations,
    exposed,
    numels,
    priced,
    ring_bandwidth,
    simulated,
    step_seconds,
)
from weft.plan.zero.stages import bucketed, calls, sent, shard

RINGS = {
    "all_reduce": ring_all_reduce,
    "reduce_scatter": ring_reduce_scatter,
    "all_gather": ring_all_gather,
}
GRID = [(n, buckets) for n in (1, 2, 3, 5) for buckets in ([1], [7], [2, 11, 5], [64, 30, 1, 9])]


# --- what is sent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("microbatches", [1, 3])
def test_bytes_sent_are_those_of_the_rings_messages(stage, microbatches):
    sizes = {"weights": 2, "gradients": 4}
    for n, buckets in GRID:
        counted = [Counter() for _ in range(n)]
        for call in calls(stage, microbatches):
            for numel in buckets:
                cut = chunks(numel, n)
                for step in RINGS[call.op](n):
                    for send in step:
                        counted[send.source][call.op] += cut[send.chunk] * sizes[call.what]
        for rank in range(n):
            planned = sent(stage, buckets, n, rank, 2, 4, microbatches)
            assert {op: nbytes for op, nbytes in planned.items() if nbytes} == +counted[rank]


def test_the_papers_volumes():
    """2, 2, 2 and 3 times the parameters: Rajbhandari et al. 2020, section 7."""
    n, numel = 8, 8 * 1000
    half = volume("all_gather", 2 * numel, n)
    totals = [sum(sent(stage, [numel], n, 3).values()) for stage in STAGES]
    assert totals == [2 * half, 2 * half, 2 * half, 3 * half]


def test_who_calls_when():
    assert [len(calls(stage, 4)) for stage in STAGES] == [1, 2, 5, 12]
    assert {call.when for call in calls(3, 2)} == {"forward", "backward"}
    for stage in (1, 2):
        assert calls(stage)[-1].when == "step"


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_shares_are_the_bucket_once(n):
    for numel in (1, 2, 6, 7, 40):
        shards = [shard(numel, n, rank) for rank in range(n)]
        assert [i for part in shards for i in part] == list(range(numel))
        lengths = list(map(len, shards))
        assert lengths == sorted(lengths, reverse=True) and lengths[0] - lengths[-1] <= 1


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(1, 120))
def test_buckets_are_full_and_in_the_order_of_backward(numels, limit):
    buckets = bucketed(numels, limit)
    assert [i for bucket in buckets for i in bucket] == list(range(len(numels)))[::-1]
    filled = [sum(numels[i] for i in bucket) for bucket in buckets]
    for held, bucket in zip(filled, buckets, strict=True):
        assert held <= limit or len(bucket) == 1
    for held, after in zip(filled[:-1], buckets[1:], strict=True):
        assert held + numels[after[0]] > limit


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("recipe", [*RECIPES, (8, 8, 16), (4, 4, 0)])
def test_what_ranks_keep_adds_up(stage, recipe):
    weight, gradient, state = RECIPES[recipe].each if isinstance(recipe, str) else recipe
    for n, buckets in GRID:
        held = [alive(stage, buckets, n, rank, recipe) for rank in range(n)]
        copies = [1 if stage >= least else n for least in (3, 2, 1)]
        whole = [sum(buckets) * each for each in (weight, gradient, state)]
        for at in range(3):
            assert sum(rank[at] for rank in held) == copies[at] * whole[at]
        assert all(rank.total == rank.kept + rank.passing for rank in held)
        assert stage >= 2 or not any(rank.passing for rank in held)


@pytest.mark.parametrize("stage", STAGES)
def test_shares_that_divide_are_table_1(stage):
    """Rajbhandari et al. 2020, table 1, is this without what passes through."""
    states = model_states(24e6, 8, stage)
    held = alive(stage, [8e6, 16e6], 8, 5)
    assert held[:3] == (states.weights, states.gradients, states.optimizer)


def test_many_small_buckets_leave_little_passing():
    few, many = ([96_000 // k] * k for k in (2, 96))
    for stage in (2, 3):
        wide, narrow = alive(stage, few, 8, 0), alive(stage, many, 8, 0)
        assert wide.kept == narrow.kept
        assert narrow.passing * 20 < wide.passing


def alive_in_time(stage, buckets, n, rank, times, earlier):
    """The most bytes alive over a simulated step, from its spans alone; 2 bytes an element."""
    mine = [len(shard(numel, n, rank)) for numel in buckets]
    changes = []  # (time, bytes): what goes, goes before what comes
    gathered = {}
    for span in simulated(stage, times):
        i, whole = span.bucket, 2 * buckets[span.bucket]
        if span.op == "all_gather":
            gathered[i] = span.start
        if span.op in ("forward", "backward") and stage == 3:
            changes += [(gathered[i], whole), (span.end, -whole)]
        if span.op == "backward":
            changes.append((span.start, whole))
        if span.op == "reduce_scatter":
            changes += [(span.start, 0 if earlier else 2 * mine[i]), (span.end, -whole)]
    now = most = 2 * sum(mine) if earlier else 0
    for _, nbytes in sorted(changes):
        now += nbytes
        most = max(most, now)
    return most


lengths = st.integers(1, 20)


@st.composite
def steps(draw, least=1, most=7):
    k = draw(st.integers(least, most))
    lists = [draw(st.lists(lengths, min_size=k, max_size=k)) for _ in range(4)]
    return Durations(*map(tuple, lists), update=draw(st.integers(0, 3)))


@settings(max_examples=150, deadline=None)
@given(steps(), st.data(), st.sampled_from([2, 3]), st.booleans())
def test_nothing_is_alive_that_was_not_promised(times, data, stage, earlier):
    k = len(times.forward)
    buckets = data.draw(st.lists(st.integers(1, 30), min_size=k, max_size=k))
    n = data.draw(st.integers(1, 5))
    held = alive(stage, buckets, n, n - 1, microbatches=1 + earlier)
    dealt = held.gradients + held.passing
    assert alive_in_time(stage, buckets, n, n - 1, times, earlier) <= dealt
    slow = Durations(times.forward, tuple(100 + b for b in times.backward), *times_of_link(times))
    assert alive_in_time(stage, buckets, n, n - 1, slow, earlier) == dealt


def times_of_link(times):
    return times.gather, times.reduce


# --- how long it takes ----------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(steps(), st.sampled_from(list(STAGES)))
def test_the_closed_form_is_the_simulation(times, stage):
    spans = simulated(stage, times)
    assert max(span.end for span in spans) == step_seconds(stage, times)
    busy = sum(span.end - span.start for span in spans if span.lane == overlap.COMPUTE)
    assert step_seconds(stage, times) - busy == exposed(stage, times) >= 0


@settings(max_examples=100, deadline=None)
@given(steps(), st.sampled_from(list(STAGES)))
def test_a_simulated_step_is_possible(times, stage):
    spans = simulated(stage, times)
    k = len(times.forward)
    for lane in (overlap.COMPUTE, overlap.LINK):
        row = [span for span in spans if span.lane == lane]
        assert all(a.end <= b.start for a, b in pairwise(row))
    ended = {(span.op, span.bucket): span.end for span in spans}
    began = {(span.op, span.bucket): span.start for span in spans}
    reduce = "all_reduce" if stage == 0 else "reduce_scatter"
    forward, backward = ([s.bucket for s in spans if s.op == op] for op in ("forward", "backward"))
    assert (forward, backward) == (list(range(k))[::-1], list(range(k)))
    for i in range(k):
        assert began[reduce, i] >= ended["backward", i]
        if stage >= 2 and i >= 2:
            assert began["backward", i] >= ended[reduce, i - 2]
        if stage in (1, 2):
            last = max(ended[reduce, j] for j in range(k)) + times.update
            assert began["all_gather", i] >= last
    counted = Counter(span.op for span in spans if span.lane == overlap.LINK)
    assert counted == Counter(call.op for call in calls(stage) for _ in range(k))


def test_equal_buckets_need_no_more_than_two():
    for backward in (1, 3, 7):
        for reduce in (1, 3, 7):
            times = Durations((1,) * 5, (backward,) * 5, (0,) * 5, (reduce,) * 5)
            assert step_seconds(1, times) == step_seconds(2, times)


def test_one_bucket_hides_nothing():
    for gather, reduce, forward, backward in product((1, 2, 5), repeat=4):
        times = Durations((forward,), (backward,), (gather,), (reduce,), update=3)
        for stage in STAGES:
            sent = gather * (1 + (stage == 3)) + reduce
            assert exposed(stage, times) == sent


@pytest.mark.parametrize("name", ["gpt-1.7b", "gpt-7.5b", "llama3-8b"])
@pytest.mark.parametrize("link", ["nvlink4", "ib-ndr"])
def test_small_buckets_leave_gathers_exposed_with_the_most_tokens(name, link):
    """In stage 3 a bias's bucket hides no matrix's gather: more than both ends of a step waits."""
    shape, rate = SHAPES[name], 0.4 * CHIPS["h100"].rate("bf16")
    elements = numels(shape)
    buckets = [sum(elements[i] for i in one) for one in bucketed(elements, 2**19)]
    inside = LINKS["nvlink4"]
    times = priced(buckets, 64, LINKS[link], 2**16, rate, inside=inside, local=8)
    assert exposed(3, times) > 2 * (times.gather[-1] + times.reduce[-1])


def test_stage_0_hides_what_stage_1_cannot():
    """Both send the same, but weights are gathered when there is nothing left to compute."""
    times = Durations((1,) * 6, (4,) * 6, (1,) * 6, (1,) * 6)
    assert exposed(0, times) == 2 and exposed(1, times) == 1 + 6


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_elements_of_a_model(name):
    shape, elements = SHAPES[name], numels(SHAPES[name])
    table = shape.vocab * shape.width
    assert sum(elements) == shape.params and min(elements) > 0
    assert len(elements) == 1 + 5 * shape.layers + (not shape.tied)
    assert elements[0] >= table and (shape.tied or table <= elements[-1] <= table + 2 * shape.width)


def test_prices_are_the_collectives():
    times = priced([100, 250], 4, LINKS["nvlink4"], tokens=10, rate=1e6, weight=2, gradient=4)
    assert times.forward == (0.002, 0.005) and times.backward == (0.004, 0.01)
    latency = 3 * LINKS["nvlink4"].latency
    sends = [time - latency for time in times.reduce]
    assert sends == pytest.approx([4 * numel * 0.75 / 450e9 for numel in (100, 250)])
    assert times.gather[1] - latency == pytest.approx(sends[1] / 2)


def test_most_steps_of_a_ring_stay_in_their_node_and_it_uses_every_port():
    link, inside = LINKS["ib-ndr"], LINKS["nvlink4"]
    for n, nodes in ((16, 2), (20, 3), (64, 8)):
        times = priced([10**6], n, link, 10, 1e6, inside=inside, local=8)
        latency = (nodes - 1) * link.latency + (n - nodes) * inside.latency
        assert times.gather[0] == pytest.approx(latency + 2e6 * (n - 1) / n / 8 / link.bandwidth)
    within = priced([10**6], 8, link, 10, 1e6, inside=inside, local=8)
    assert within == priced([10**6], 8, inside, 10, 1e6)
    wide = Link("wide", inside.bandwidth, link.latency)
    assert ring_bandwidth(16, wide, inside, 8) == pytest.approx(inside.bandwidth * 8 / 7)


@pytest.mark.parametrize("box", ["dgx-a100", "dgx-h100"])
def test_an_all_reduce_is_as_fast_as_by_rails(box):
    """The collectives chapter's, where steps are in lockstep, but for the latencies."""
    box = BOXES[box]
    link, inside = (Link(x.name, x.bandwidth, 0.0) for x in (box.outside, box.inside))
    times = priced([10**9], 32, link, 10, 1e6, inside=inside, local=8)
    expected = rails_seconds(2e9, 4, 8, inside, link)
    assert times.gather[0] + times.reduce[0] == pytest.approx(expected)


# --- arguments ------------------------------------------------------------------------------------


def test_numbers_of_numpy_are_welcome():
    buckets = np.array([10, 11])
    assert sent(np.int64(1), buckets, np.int64(4), np.int64(2)) == sent(1, [10, 11], 4, 2)
    assert alive(np.int64(3), buckets, 4, np.int64(2)) == alive(3, [10, 11], 4, 2)


TIMES = Durations((1,), (1,), (1,), (1,))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: calls(4), "stage is 4"),
        (lambda: calls(True), "stage is True"),
        (lambda: calls(1, 0), "microbatches is 0"),
        (lambda: sent(1, [], 2, 0), "buckets is empty"),
        (lambda: sent(1, [3, 0], 2, 0), "elements in buckets is 0"),
        (lambda: sent(1, [3], 2, 2), "rank is 2, must be a whole number from 0 to 1"),
        (lambda: sent(1, [3], 0, 0), "n is 0"),
        (lambda: sent(1, [3], 2, 0, weight=0), "weight is 0"),
        (lambda: shard(4, 2, -1), "rank is -1"),
        (lambda: bucketed([3], 0), "limit is 0"),
        (lambda: alive("3", [3], 2, 0), "stage is '3'"),
        (lambda: alive(3, [], 2, 0), "buckets is empty"),
        (lambda: alive(3, [3], 2, 5), "rank is 5"),
        (lambda: alive(3, [3], 2, 0, "fp8"), "recipe is 'fp8', must be one of fp32, mixed"),
        (lambda: alive(3, [3], 2, 0, (2, 2)), r"recipe is \(2, 2\)"),
        (lambda: alive(3, [3], 2, 0, (2, 0, 4)), "gradient is 0"),
        (lambda: alive(3, [3], 2, 0, microbatches=0), "microbatches is 0"),
        (lambda: Durations((), (), (), ()), "forward has 0 times"),
        (lambda: Durations((1,), (1, 2), (1,), (1,)), "backward has 2 times, must have 1"),
        (lambda: Durations((1,), (-1,), (1,), (1,)), "backward is -1"),
        (lambda: Durations((1,), (1,), (float("inf"),), (1,)), "gather is inf"),
        (lambda: Durations((1,), (1,), (1,), (1,), update="x"), "update is 'x'"),
        (lambda: simulated(4, TIMES), "stage is 4"),
        (lambda: step_seconds(-1, TIMES), "stage is -1"),
        (lambda: priced([3], 2, LINKS["pcie4"], 0, 1e12), "tokens is 0"),
        (lambda: priced([3], 2, LINKS["pcie4"], 1, 0), "rate is 0"),
        (lambda: priced([3], 0, LINKS["pcie4"], 1, 1e12), "n is 0"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
