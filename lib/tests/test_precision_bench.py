"""The precision benchmarks at a small size: what they measure, not how fast that is."""

from statistics import median

import pytest
import torch

from weft.bench import precision
from weft.bench.clock import OneDevice
from weft.bench.jobs import BenchRun
from weft.bench.precision import COPY, EACH, FIRST, FUSED, JOBS, MIXED, OURS, SAID, optimizers
from weft.nn.precision import WAYS, Task, distance, train
from weft.plan.precision.state import RECIPES

MODELS = {"two": (5, 100), "one": (33,)}
SMALL = {
    "precision-training": {"tasks": (Task(width=6, batch=5, steps=3),), "seeds": 2},
    "precision-adam": {"models": MODELS},
}


@pytest.fixture(scope="module")
def records():
    made = {}
    for job in JOBS:
        told = []
        run = BenchRun("cpu", lambda *what, told=told: told.append(what), OneDevice("cpu", 1, 3))
        made[job.name] = job.record(run, **SMALL[job.name])
        assert [done for done, *_ in told] == list(range(told[0][1])) and len(told) > 1
    return made


def test_there_is_a_record_for_each_question(records):
    assert list(records) == ["precision-training", "precision-adam"]
    assert {(record.topic, record.chip) for record in records.values()} == {("precision", "cpu")}


def test_every_way_is_compared_with_fp32_of_its_own_seed(records):
    record = records["precision-training"]
    assert record.result("fp32", "loss at 0.001").samples == (1.0, 1.0)
    for way in WAYS:
        tasks = [Task(6, batch=5, steps=3, seed=seed) for seed in range(2)]
        pairs = [(train(way, task), train("fp32", task)) for task in tasks]
        assert record.result(way, "loss at 0.001").samples == tuple(
            distance(*pair) for pair in pairs
        )
        zeros = record.result(way, "zeros at 0.001").samples
        assert zeros == tuple(run.zeros for run, _ in pairs)


def test_rates_are_bytes_over_time_and_ratios_of_one_round(records):
    record = records["precision-adam"]
    for name in MODELS:
        rates = {who: record.result(name, who).samples for who in (SAID, FUSED, COPY)}
        assert all(len(samples) == 3 and min(samples) > 0 for samples in rates.values())
        for other in (COPY, FUSED):
            ratio = record.result(name, f"{SAID} / {other}").value
            assert ratio == median(a / b for a, b in zip(rates[SAID], rates[other], strict=True))


def test_the_bytes_are_those_of_the_plan(monkeypatch):
    """With a clock by which every call takes a second, a rate is the bytes."""
    clock = OneDevice("cpu", 0, 1)
    monkeypatch.setattr(clock, "begin", lambda call, times: lambda: 1.0)
    _, results = precision.stepping(BenchRun(given=clock), MODELS)
    rates = {(r.name, r.who): r.value for r in results if r.unit == "B/s"}
    assert rates["two", SAID] == 105 * MIXED.moved and MIXED.moved == 28
    assert rates["two", FUSED] == 105 * RECIPES["fp32"].moved
    assert rates["two", COPY] == 2 * (105 * 28 // 2)


def test_on_a_gpu_it_is_the_kernels_that_are_timed(monkeypatch):
    monkeypatch.setattr(precision, "parameters", lambda n, dtype, _: made(n, dtype))
    ways = optimizers((3, 4), "cuda")
    assert list(ways) == [OURS, FIRST, FUSED, EACH]
    for who in (OURS, FIRST):
        call, recipe = ways[who]
        weights = call.__self__.param_groups[0]["params"]
        before = [w.detach().clone() for w in weights]
        call()
        assert recipe == MIXED and all(w.dtype == torch.bfloat16 for w in weights)
        assert not any(torch.equal(a, b) for a, b in zip(weights, before, strict=True))


def made(shapes, dtype):
    return _parameters(shapes, dtype, "cpu")


_parameters = precision.parameters
