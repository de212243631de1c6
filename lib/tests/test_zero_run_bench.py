"""The ZeRO benchmark at a small size: what it measures, not how fast that is."""

import sys
from statistics import median

import cloudpickle
import pytest
import torch._dynamo  # noqa: F401 (launch then has it loaded once, and not each rank)

from weft.bench.jobs import BenchRun
from weft.bench.zero import peers as bench
from weft.bench.zero.peers import OURS, PEAK, PEERS, STEP, DecoderSizes
from weft.nn.transformer import Config
from weft.run.world import RankFailed, launch

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file

SMALL = DecoderSizes(Config(layers=2, width=16, heads=2, vocab=32, seq=8), 2, 0, 2)


@pytest.fixture(scope="module")
def records():
    how = {"zero-step": {"launches": 1}, "zero-peak": {}}
    return {j.name: j.record(BenchRun(), sizes=SMALL, **how[j.name]) for j in (STEP, PEAK)}


@pytest.mark.parametrize(("name", "unit"), [("zero-step", "s"), ("zero-peak", "B")])
def test_both_were_measured_as_often_and_compared_pair_by_pair(records, name, unit):
    record = records[name]
    assert len(record.results) == 3 * len(PEERS)
    for stage, peer in PEERS.items():
        ours, theirs = (record.result(f"stage {stage}", who) for who in (OURS, peer))
        assert (ours.unit, len(ours.samples)) == (unit, len(theirs.samples))
        assert min(*ours.samples, *theirs.samples) > 0
        pairs = zip(ours.samples, theirs.samples, strict=True)
        ratio = record.result(f"stage {stage}", f"{OURS} / {peer}")
        assert ratio.value == median(a / b for a, b in pairs)


def test_ranks_that_learn_other_things_are_found_out():
    def work(world):
        step = bench.ours(world, 0, SMALL)
        bench.theirs = lambda *given: lambda: step() + 1
        bench._times(world, 0, SMALL)

    with pytest.raises(RankFailed, match="losses of stage 0"):
        launch(work, 1)
