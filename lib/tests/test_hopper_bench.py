"""FlashAttention-3's benchmark, small and interpreted: what it measures, not how fast that is."""

from functools import partial
from statistics import median

import pytest
import torch

from weft.bench.attention import OURS, AttentionSizes, accepted, contest, inputs
from weft.bench.attention.on_gpu import BEST
from weft.bench.clock import OneDevice
from weft.bench.hopper import speed as bench
from weft.bench.hopper.speed import EIGHT, FULL, ROUNDED, SIXTEEN, SPEED, VERSIONS, eight_bits
from weft.bench.jobs import BenchRun
from weft.ref.attention.exact import attention as reference

TINY = AttentionSizes((8, 40), tokens=40, hidden=256, square=32)
CLOCK = OneDevice("cpu", 0, 2)


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture(scope="module")
def records():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        patch.setattr(contest, "FLEX", ())
        some = [job for job in SPEED if not job.name.endswith(("-64", "-256"))]
        run = BenchRun(given=CLOCK)
        return {job.name: job._replace(on=("cpu",)).record(run, sizes=TINY) for job in some}


NAMES = [f"{kind}, T = {length}" for kind in ("full", "causal") for length in (8, 40)]


def test_there_is_a_record_for_each_question(records):
    assert {(r.topic, r.command, r.chip) for r in records.values()} == {
        ("hopper", f"weft bench {name}", "cpu") for name in records
    }
    assert "2 heads of width 128, 40 tokens" in records["hopper-forward-128"].title


def test_every_width_of_the_full_size_has_a_forward_a_backward_and_eight_bits():
    assert FULL.lengths == (512, 1024, 2048, 4096, 8192, 16384, 32768)
    names = {job.name for job in SPEED}
    for width in (64, 128, 256):
        assert {f"hopper-{what}-{width}" for what in ("forward", "backward", "fp8")} <= names
    for job in SPEED:
        title, _ = job.measure(BenchRun(given=CLOCK), sizes=TINY._replace(lengths=()))
        width = job.name.rpartition("-")[2]
        assert not width.isdigit() or f"heads of width {width}" in title
        assert 0 < job.seconds <= 120 and job.on == ("cuda",)


def test_ceilings_are_a_copy_and_two_products(records):
    found = [(r.name, r.who, r.unit) for r in records["hopper-roof"].results]
    products = [("matmul", "torch", "FLOP/s"), ("matmul, e4m3", "torch", "FLOP/s")]
    assert found == [("copy", "torch", "B/s"), *products]


def test_all_versions_are_timed_in_turn(records):
    rows = [(r.name, r.who) for r in records["hopper-versions"].results]
    assert rows == [(name, who) for name in NAMES for who in VERSIONS]
    assert all(len(r.samples) == 2 for r in records["hopper-versions"].results)


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_we_are_compared_with_the_best_peer(records, way):
    record = records[f"hopper-{way}-128"]
    assert list(dict.fromkeys(result.name for result in record.results)) == NAMES
    for name in NAMES:
        peers = [r for r in record.results if r.name == name and r.who not in (OURS, BEST)]
        assert {"math", "flash"} <= {peer.who for peer in peers}
        best = max(peers, key=lambda peer: peer.value)
        ours = record.result(name, OURS)
        ratio = median(a / b for a, b in zip(ours.samples, best.samples, strict=True))
        assert record.result(name, BEST).value == ratio


def test_eight_bits_are_compared_with_sixteen(records):
    record = records["hopper-fp8-128"]
    for name in NAMES:
        both = (record.result(name, who).samples for who in (EIGHT, SIXTEEN))
        ratio = median(a / b for a, b in zip(*both, strict=True))
        assert record.result(name, f"{EIGHT} / {SIXTEEN}").value == ratio
        assert record.result(name, ROUNDED).unit == "FLOP/s"


def test_eight_bits_that_are_wrong_stop_the_benchmark(monkeypatch):
    right = bench.fp8.attend
    monkeypatch.setattr(
        bench.fp8, "attend", lambda *given: (right(*given)[0] * 1.1, right(*given)[1])
    )
    with pytest.raises(AssertionError, match=r"FP8 is wrong by .* forward"):
        eight_bits(CLOCK, TINY._replace(lengths=(40,)), 128)


def test_our_own_may_not_be_left_out():
    def absent(*_):
        raise RuntimeError("no such chip")

    *qkv, do = inputs(40, 256, 8, 128, "cpu")
    faces = {"right": partial(reference, causal=True), "absent": absent}
    assert list(accepted(faces, qkv, do, True, "forward", ours=["right"])) == ["right"]
    with pytest.raises(RuntimeError, match="no such chip"):
        accepted(faces, qkv, do, True, "forward", ours=faces)


def test_groups_are_those_that_divide_the_heads(records):
    for way in ("", "backward-"):
        names = {result.name for result in records[f"hopper-grouped-{way}128"].results}
        assert names == {f"G = 1, T = {length}" for length in (8, 40)}  # of two heads


def test_without_a_hopper_gpu_there_is_nothing_to_time(monkeypatch):
    run = BenchRun("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for job in SPEED:
        with pytest.raises(ValueError, match="this needs a Hopper GPU: torch sees no CUDA device"):
            job.record(run)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A100")
    with pytest.raises(ValueError, match=r"of compute capability 9\.0: A100 has 8\.0"):
        SPEED[0].record(run)
