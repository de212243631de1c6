"""The ring's benchmarks at a small size: what they measure, not how fast that is."""

from math import isfinite

import pytest

from weft.bench.jobs import BenchRun
from weft.bench.ring import JOBS, link
from weft.bench.ring.link import LINK, RANKS, WiredRing, pair_seconds
from weft.bench.ring.on_gpu import OVER, PlayedRing, played
from weft.bench.ring.peers import CONTEXT_PARALLEL, GATHER, OURS, STEP, RingSizes
from weft.plan.hardware import LINKS
from weft.plan.ring import LAYOUTS
from weft.run.world import launch


def test_everybody_was_measured_on_the_same_and_says_the_same():
    sizes = RingSizes(T=32, H=2, G=2, K=8, repeats=2)
    record = STEP.record(BenchRun(), sizes=sizes)
    for name, peers in {"causal": [GATHER], "all pairs": [GATHER, CONTEXT_PARALLEL]}.items():
        whose = [OURS, "weft, ulysses", "weft, gather", *peers]
        assert all(len(record.result(name, who).samples) == 2 for who in whose)
        for peer in peers:
            ratio = record.result(name, f"{OURS} / {peer}")
            ours, theirs = (record.result(name, who).samples for who in (OURS, peer))
            assert ratio.samples == tuple(a / b for a, b in zip(ours, theirs, strict=True))
    assert "context_parallel, causal: " in record.title


def test_one_device_plays_every_rank_of_every_layout():
    title, results = played(BenchRun(), PlayedRing((8,), 2, 2, 1, 8, warmup=0, repeats=2))
    found = {(result.name, result.who): result for result in results}
    assert all(isfinite(result.value) and result.value > 0 for result in results)
    for layout in LAYOUTS:
        assert len(found[f"{layout}, 8 tokens a rank", "weft"].samples) == 2
    block = 8 * 2 * 8 * 2  # tokens, keys and values of one head, bf16
    for over in OVER:
        assert found["a block, 8 tokens", f"{over}, b/B"].value == block / LINKS[over].bandwidth
    assert "in the place of 2 ranks" in title


def test_a_zigzag_step_sleeps_as_long_as_its_block_is_on_the_wire():
    sizes = WiredRing(T=64, H=2, G=2, K=4, rate=1000, ratio=1.0)
    c = sizes.T // RANKS
    step = pair_seconds(sizes) * sizes.H * c * c / 2
    assert step == pytest.approx(c * 2 * 2 * 4 * 4 * 8 / sizes.rate)


def test_a_ring_over_a_wire_is_measured_beside_what_it_hides(monkeypatch):
    sizes = WiredRing(T=64, rate=10**9, repeats=2, warmup=0)
    found = launch(link._measured, RANKS, sizes)[0]  # without a wire between them
    monkeypatch.setattr(link, "across", lambda sizes: found)
    record = LINK.record(BenchRun(), sizes=sizes)
    both = record.result("ring, zigzag", "weft"), record.result("sending", "weft")
    most = record.result("ring, zigzag", "max(computing, sending)")
    assert most.samples == tuple(map(max, both[1].samples, found["computing"]))
    ratio = record.result("ring, contiguous", "contiguous / zigzag").samples
    pairs = zip(found["ring, contiguous"], both[0].samples, strict=True)
    assert ratio == tuple(a / b for a, b in pairs)
    assert {"ulysses", "gather"} <= {result.name for result in record.results}


def test_jobs_are_of_the_topic():
    assert [job.topic for job in JOBS] == ["ring"] * len(JOBS)
