"""The experts' benchmarks at a small size: what they measure, not how fast that is."""

import pytest

from weft.bench.experts import balance, link
from weft.bench.experts.balance import BALANCE, BalanceSizes
from weft.bench.experts.link import WiredExperts
from weft.bench.experts.peers import LOOP, OURS, PLAIN, STEP, ExpertsStep
from weft.bench.jobs import BenchRun
from weft.bench.record import read
from weft.run.world import launch


def test_everybody_steps_on_the_same_and_gets_the_same():
    sizes = ExpertsStep(T=12, D=8, F=16, E=4, ranks=(2,), warmup=0, repeats=2)
    record = STEP.record(BenchRun(), sizes=sizes)
    ours = record.result("2 ranks", OURS).samples
    for peer in (LOOP, PLAIN):
        theirs, ratio = (
            record.result("2 ranks", who).samples for who in (peer, f"{OURS} / {peer}")
        )
        assert len(theirs) == 2
        assert ratio == tuple(a / b for a, b in zip(ours, theirs, strict=True))


def test_a_shared_expert_sleeps_as_long_as_a_dispatch_is_on_the_wire(monkeypatch):
    sizes = WiredExperts(T=16, D=8, F=4, rate=10**6, warmup=0, repeats=3)
    assert sizes.dispatch == 8 * (16 / 2) * 8 * 4 / 10**6  # half of the tokens, each 8 floats
    found = launch(link.measured, 2, sizes)[0]  # without a wire between them
    assert min(found[link.AFTER]) > 2 * sizes.dispatch and len(found[link.BESIDE]) == 3
    monkeypatch.setattr(link, "across", lambda sizes: found)
    record = link.LINK.record(BenchRun(), sizes=sizes)
    ratio = record.result("16 tokens a rank", f"{link.BESIDE} / {link.AFTER}").samples
    pairs = zip(found[link.BESIDE], found[link.AFTER], strict=True)
    assert ratio == tuple(a / b for a, b in pairs)


def test_shares_of_experts_add_up_in_every_window(monkeypatch):
    monkeypatch.setattr(balance, "WAYS", {"bias, 0.01": balance.WAYS["bias, 0.01"]})  # one will do
    sizes = BalanceSizes(2, 8, 2, seq=8, batch=2, experts=3, steps=6, window=2)
    record = BALANCE.record(BenchRun(), sizes=sizes)
    for way in balance.WAYS:
        rows = [record.result(f"expert {i}", way).samples for i in range(3)]
        shares = [*zip(*rows, strict=True)]
        assert [sum(window) for window in shares] == pytest.approx([1.0] * 3)
        assert record.result("the fullest expert", way).samples == tuple(map(max, shares))
        idle = record.result("idle experts", way).samples
        assert idle == tuple(window.count(0) for window in shares)
        assert len(record.result("loss", way).samples) == 3


def test_in_the_record_without_balance_three_to_five_experts_are_soon_idle(root):
    record = read(root / "book/measured/experts-balance.cpu.json")
    alone = record.result("idle experts", "no balance").samples
    assert {*alone[1:]} == {3, 4, 5}
    fullest = record.result("the fullest expert", "no balance").samples
    assert all(0.4 < share < 0.75 for share in fullest[1:])
