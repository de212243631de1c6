"""The pipeline benchmark at a small size: what it measures, not how fast that is."""

from statistics import median

import pytest

from weft.bench.jobs import BenchRun
from weft.bench.pipeline.bubble import BUBBLE, CLOSED
from weft.bench.pipeline.peers import OURS, PEERS, STEPS, THEIRS, PipelineSizes, demand_equal
from weft.bench.pipeline.simulation import SIMULATION
from weft.nn.transformer import Config, stages
from weft.plan.pipeline.schedules import SCHEDULES

CONFIG = Config(layers=4, width=8, heads=2, vocab=19, seq=5)
SMALL = PipelineSizes(p=2, m=4, batch=2, config=CONFIG, warmup=1, repeats=3)


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def records(told):
    run = BenchRun(progress=lambda *what: told.append(what))
    made = [
        STEPS.record(run, sizes=SMALL, launches=1),
        BUBBLE.record(run, sizes=SMALL),
        SIMULATION.record(run, sizes=(320, 640)),
    ]
    return {record.name: record for record in made}


def test_there_is_a_record_for_each_question(records, told):
    assert list(records) == ["pipeline-peers", "pipeline-bubble", "pipeline-simulation"]
    assert {record.topic for record in records.values()} == {"pipeline"}
    assert "p = 2, m = 4, 4 blocks of width 8" in records["pipeline-peers"].title
    assert [done / total for done, total, _ in told] == [0, 0, 0, 0.5]


def test_every_peer_was_timed_as_often_as_we_were(records):
    record = records["pipeline-peers"]
    for name in PEERS:
        ours, theirs = (record.result(name, who).samples for who in (OURS, THEIRS))
        assert len(ours) == len(theirs) == 3 and min(*ours, *theirs) > 0
        ratio = record.result(name, f"{OURS} / {THEIRS}").value
        assert ratio == median(a / b for a, b in zip(ours, theirs, strict=True))


def test_every_schedule_was_measured_and_simulated(records):
    record = records["pipeline-bubble"]
    assert {r.name for r in record.results} == set(SCHEDULES)
    for result in record.results:
        assert len(result.samples) == 3 and all(0 <= value < 1 for value in result.samples)
    formulas = [r.name.split()[0] for r in record.results if r.who == "formula"]
    assert sorted(formulas) == sorted(CLOSED)


def test_simulations_were_timed(records):
    names = [result.name for result in records["pipeline-simulation"].results]
    assert names == ["320 actions", "640 actions"]


def test_unequal_gradients_stop_the_benchmark():
    a, b = ({3: stages(Config(layers=1, width=4), 1)[0]} for _ in range(2))
    for model in (a, b):
        for weight in model[3].parameters():
            weight.grad = weight.detach().new_ones(weight.shape)
    demand_equal(a, b)
    next(b[3].parameters()).grad[0, 0] += 0.01
    with pytest.raises(AssertionError, match=r"tokens.weight in stage 3"):
        demand_equal(a, b)
