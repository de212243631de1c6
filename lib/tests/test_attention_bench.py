"""The attention benchmark at a small size: what it measures and refuses, not how fast that is."""

from functools import partial
from statistics import median

import pytest
import torch

from weft.bench.attention import OURS, AttentionSizes, accepted, contest, inputs, work
from weft.bench.attention.on_cpu import ON_CPU, TileSizes
from weft.bench.attention.on_gpu import BEST, FULL, ON_GPU, compared
from weft.bench.clock import OneDevice
from weft.bench.jobs import BenchRun
from weft.kernels.attention.face import attention
from weft.ref.attention.exact import attention as reference

SMALL = TileSizes((32, 64), heads=2, width=16, tile=32)
TINY = AttentionSizes((8, 16), tokens=16, hidden=32, square=32)


@pytest.fixture(scope="module")
def on_a_cpu():
    made = {}
    for job in ON_CPU:
        told = []
        run = BenchRun("cpu", lambda *what, told=told: told.append(what), OneDevice("cpu", 1, 3))
        short = job.name.endswith("interpreter")
        made[job.name] = job.record(run, sizes=SMALL._replace(lengths=(16,)) if short else SMALL)
        shares = [done / total for done, total, _ in told]
        assert shares == sorted(shares) and 0 <= shares[0] <= shares[-1] < 1
    return made


def test_there_is_a_record_for_each_question(on_a_cpu):
    assert list(on_a_cpu) == ["attention-tiled", "attention-memory", "attention-interpreter"]
    assert {(record.topic, record.chip) for record in on_a_cpu.values()} == {("attention", "cpu")}


@pytest.mark.parametrize(
    ("name", "who", "lengths"),
    [("attention-tiled", "tiles", (32, 64)), ("attention-interpreter", "interpreter", (16,))],
)
def test_both_were_timed_in_turn(on_a_cpu, name, who, lengths):
    record = on_a_cpu[name]
    assert {result.name for result in record.results} == {f"T = {length}" for length in lengths}
    for length in lengths:
        ours, torchs = (record.result(f"T = {length}", by).samples for by in (who, "torch"))
        assert len(ours) == len(torchs) == 3 and min(*ours, *torchs) > 0
        ratio = record.result(f"T = {length}", f"{who} / torch").value
        assert ratio == median(a / b for a, b in zip(ours, torchs, strict=True))


def test_naive_attention_keeps_the_matrix_and_tiles_do_not(on_a_cpu):
    record, heads = on_a_cpu["attention-memory"], 2
    for length in (32, 64):
        naive, tiles = (record.result(f"T = {length}", who).value for who in ("naive", "tiles"))
        assert naive >= heads * length * length * 4
        assert tiles < naive
    small, large = (record.result(f"T = {length}", "tiles").value for length in (32, 64))
    assert large - small == 32 * heads * (16 + 1) * 4  # rows of o and lse, and no more tiles


@pytest.fixture(scope="module")
def on_a_gpu():
    """On a processor too, with the interpreter in place of kernels."""
    run = BenchRun(given=OneDevice("cpu", 0, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contest, "FLEX", ())
        some = [job._replace(on=("cpu",)) for job in ON_GPU if "64" not in job.name]
        return {job.name: job.record(run, sizes=TINY, width=16) for job in some[:6]}


def test_every_width_has_its_records(on_a_gpu):
    first = [f"attention-{way}-128" for way in ("forward", "backward")]
    groups = ["attention-grouped-128", "attention-grouped-backward-128"]
    others = [f"attention-{way}-{width}" for width in (64, 256) for way in ("forward", "backward")]
    names = ["attention-roof", *first, "attention-versions", *groups]
    assert list(on_a_gpu) == names and [job.name for job in ON_GPU] == [*names, *others]
    assert "2 heads of width 16, 16 tokens" in on_a_gpu["attention-forward-128"].title
    roof = on_a_gpu["attention-roof"]
    assert [(r.name, r.unit) for r in roof.results] == [("copy", "B/s"), ("matmul", "FLOP/s")]
    rows = {(r.name, r.who) for r in on_a_gpu["attention-versions"].results}
    assert rows == {(f"T = {n}", who) for n in (8, 16) for who in ("naive", "fa1", "fa2")}


def test_every_job_of_a_gpu_is_of_the_width_in_its_name():
    run = BenchRun(given=OneDevice("cpu", 0, 1))
    for job in ON_GPU:
        title, _ = job.measure(run, sizes=TINY._replace(lengths=()))
        width = job.name.rpartition("-")[2]
        assert not width.isdigit() or f"heads of width {width}" in title
        assert 0 < job.seconds <= 120 and job.on == ("cuda",)


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_we_are_compared_with_the_best_peer(on_a_gpu, way):
    record = on_a_gpu[f"attention-{way}-128"]
    names = {f"{kind}, T = {length}" for kind in ("full", "causal") for length in (8, 16)}
    assert {result.name for result in record.results} == names
    for name in names:
        peers = [r for r in record.results if r.name == name and r.who not in (OURS, BEST)]
        assert {"math", "flash"} <= {peer.who for peer in peers}
        best = max(peers, key=lambda peer: peer.value)
        ours = record.result(name, OURS)
        ratio = median(a / b for a, b in zip(ours.samples, best.samples, strict=True))
        assert record.result(name, BEST).value == ratio


@pytest.mark.parametrize("way", ["", "backward-"])
def test_groups_are_those_that_divide_the_heads(on_a_gpu, way):
    record = on_a_gpu[f"attention-grouped-{way}128"]
    names = list(dict.fromkeys(result.name for result in record.results))
    assert names == [f"G = 1, T = {length}" for length in (8, 16)]  # of two heads
    assert all("math" in {r.who for r in record.results if r.name == name} for name in names)


def test_the_heads_that_share_a_kv_head_are_checked_together():
    """Wrong in one head of the group only: its dk is wrong, and no other head's is."""
    q, k, v, do = inputs(20, 64, 20, 16, "cpu", kv_heads=2)
    assert [x.shape[2] for x in (q, k, v, do)] == [4, 2, 2, 4]

    def wrong(head):
        def face(q, k, v):
            scaled = torch.ones(4).index_fill(0, torch.tensor([head]), 1.1)
            return reference(q, k, v, causal=True) * scaled[:, None]

        return {"face": face}

    for way, seen in (("forward", (3,)), ("backward", (2, 3))):
        right = {"face": partial(reference, causal=True)}
        assert accepted(right, (q, k, v), do, True, way, ours=right)
        for head in seen:
            with pytest.raises(AssertionError, match="face is wrong by"):
                accepted(wrong(head), (q, k, v), do, True, way)


def test_flex_is_compiled_for_few_sizes_and_never_for_groups(monkeypatch):
    monkeypatch.setattr(contest, "_flex", lambda *_: "compiled")
    assert len(contest.FLEX) * 2 <= 8  # causal and not; beyond, torch falls back to what is slow
    assert {width for width, _ in contest.FLEX} <= {64, 128, 256}
    assert {length for _, length in contest.FLEX} <= set(FULL.lengths)
    for T, G, there in ((2048, 16, True), (2048, 4, False), (4096, 16, False)):
        q, k = (torch.empty(8, T, heads, 128, device="meta") for heads in (16, G))
        assert ("flex" in contest.peers(q, k, True)) == there
        assert "math" in contest.peers(q, k, True)
    q = torch.empty(1, 8192, 16, 128, device="meta")
    assert "math" not in contest.peers(q, q, True)


def test_rates_count_operations_as_the_papers_do():
    q = torch.empty(2, 8192, 16, 128, device="meta")
    assert work(q, causal=False) == 4 * 2 * 16 * 8192**2 * 128
    assert work(q, causal=True) * 2 == work(q, causal=False)
    (only,) = compared("T = 1", {OURS: [0.5, 0.25]}, 100.0)
    assert only.samples == (200.0, 400.0)


def test_another_version_of_ours_is_timed_and_is_no_peer():
    samples = {OURS: [2.0], "weft, first": [1.0], "flash": [4.0]}
    found = {r.who: r.value for r in compared("T = 1", samples, 100.0)}
    assert found == {OURS: 50.0, "weft, first": 100.0, "flash": 25.0, BEST: 2.0}


def drawn(T=20):
    return inputs(T, 32, T, 16, "cpu")


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda q, k, v: reference(q, k, v),  # not causal
        lambda q, k, v: reference(q, k, v, causal=True) * 1.03,
        lambda q, k, v: reference(q, k, v, causal=True) + (q * 0).log(),  # NaN
    ],
)
def test_a_wrong_contestant_stops_the_benchmark(wrong, way):
    *qkv, do = drawn()
    right = {OURS: partial(reference, causal=True)}
    assert list(accepted(right, tuple(qkv), do, True, way)) == [OURS]
    with pytest.raises(AssertionError, match=f"peer is wrong by .* {way}"):
        accepted(right | {"peer": wrong}, tuple(qkv), do, True, way)


def test_a_peer_that_does_not_run_is_left_out_and_we_are_not(capsys):
    def absent(*_):
        raise RuntimeError("no such chip\nlong story")

    *qkv, do = drawn()
    faces = {OURS: partial(attention, causal=True), "peer": absent}
    assert list(accepted(faces, tuple(qkv), do, True, "forward")) == [OURS]
    assert capsys.readouterr().err == "peer does not run here: no such chip\n"
    with pytest.raises(RuntimeError, match="no such chip"):
        accepted({OURS: absent}, tuple(qkv), do, True, "forward")
