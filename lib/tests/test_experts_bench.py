"""The experts' benchmarks at a small size: what they measure, not how fast that is."""

import pytest

from weft.bench.experts.balance import BALANCE, WAYS, BalanceSizes
from weft.bench.experts.peers import AFTER, LOOP, OURS, PLAIN, SHARED, STEP, StepSizes
from weft.bench.jobs import BenchRun
from weft.nn.transformer import Config


def test_everybody_steps_on_the_same_and_gets_the_same():
    sizes = StepSizes(T=12, D=8, F=16, E=4, ranks=(2,), warmup=0, repeats=2)
    record = STEP.record(BenchRun(), sizes=sizes)
    for who in (OURS, LOOP, PLAIN, SHARED, AFTER):
        assert len(record.result("2 ranks", who).samples) == 2
    for one, other in ((OURS, LOOP), (OURS, PLAIN), (SHARED, AFTER)):
        ours, theirs = (record.result("2 ranks", who).samples for who in (one, other))
        ratio = record.result("2 ranks", f"{one} / {other}").samples
        assert ratio == tuple(a / b for a, b in zip(ours, theirs, strict=True))


def test_shares_of_experts_add_up_in_every_window():
    config = Config(layers=2, width=8, heads=2, seq=8)
    sizes = BalanceSizes(config, batch=2, experts=3, steps=6, window=2)
    record = BALANCE.record(BenchRun(), sizes=sizes)
    for way in WAYS:
        rows = [record.result(f"expert {i}", way).samples for i in range(3)]
        shares = [*zip(*rows, strict=True)]
        assert [sum(window) for window in shares] == pytest.approx([1.0] * 3)
        assert record.result("the fullest expert", way).samples == tuple(map(max, shares))
        idle = record.result("idle experts", way).samples
        assert idle == tuple(window.count(0) for window in shares)
        assert len(record.result("loss", way).samples) == 3
