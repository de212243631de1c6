"""The ZeRO benchmark at a small size: what it measures, not how fast that is."""

import sys
from statistics import median

import cloudpickle
import pytest
import torch._dynamo  # noqa: F401 (launch then has it loaded once, and not each rank)

from weft.bench.jobs import BenchRun
from weft.bench.zero import peers as bench
from weft.bench.zero.peers import OURS, PEAK, PEERS, STEP, TrainingSizes, decoder, gpt2
from weft.nn.transformer import Config
from weft.run.world import RankFailed, launch

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file

TINY = Config(layers=2, width=16, heads=2, vocab=32, seq=8)
QUICK = {"batch": 2, "seq": 8, "warmup": 0, "repeats": 2, "launches": 1}


def small() -> TrainingSizes:
    return TrainingSizes(decoder(TINY), **QUICK)


def published() -> TrainingSizes:
    model = gpt2(n_layer=2, n_embd=16, n_head=2, vocab_size=32, n_positions=8)
    return TrainingSizes(model, **QUICK, ranks=(1, 2))


@pytest.fixture(scope="module", params=[small, published])
def sizes(request):
    return request.param


@pytest.mark.parametrize(("job", "unit"), [(STEP, "s"), (PEAK, "B")])
def test_both_were_measured_as_often_and_compared_pair_by_pair(sizes, job, unit):
    record = job.record(BenchRun(), sizes=sizes)
    ranks = sizes().ranks
    assert len(record.results) == 3 * len(PEERS) * len(ranks)
    for stage, peer in PEERS.items():
        for n in ranks:
            name = f"stage {stage}" + (f", {n} ranks" if len(ranks) > 1 else "")
            ours, theirs = (record.result(name, who) for who in (OURS, peer))
            assert (ours.unit, len(ours.samples)) == (unit, len(theirs.samples))
            assert min(*ours.samples, *theirs.samples) > 0
            pairs = zip(ours.samples, theirs.samples, strict=True)
            ratio = record.result(name, f"{OURS} / {peer}")
            assert ratio.value == median(a / b for a, b in pairs)


def test_ranks_that_learn_other_things_are_found_out():
    def work(world):
        step = bench.ours(world, 0, small())
        bench.theirs = lambda *given: lambda: step() + 1
        bench._times(world, 0, small())

    with pytest.raises(RankFailed, match="losses of stage 0"):
        launch(work, 1)
