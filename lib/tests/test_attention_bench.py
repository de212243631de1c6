"""The attention benchmark at a small size: what it measures and refuses, not how fast that is."""

import time
from functools import partial
from statistics import median

import pytest
import torch

from weft.bench import attention as bench
from weft.bench.attention import BEST, OURS, Sizes, accepted, compared, on_cpu, on_gpu
from weft.kernels.attention.face import attention
from weft.ref.attention.exact import attention as reference

SMALL = Sizes((32, 64), hidden=32, widths=(16,), repeats=3, tile=32, interpreted=(16,))
TINY = Sizes((8, 16), widths=(16,), tokens=16, hidden=32, repeats=2, square=32)


class Watch:
    """A clock for a processor: on_gpu runs there too, with the interpreter in place of kernels."""

    device = "cpu"

    def samples(self, calls):
        times = {who: [] for who in calls}
        for _ in range(TINY.repeats):
            for who, call in calls.items():
                start = time.perf_counter()
                call()
                times[who].append(time.perf_counter() - start)
        return times


def silent(*_):
    pass


@pytest.fixture(scope="module")
def on_a_cpu():
    told = []
    records = {record.name: record for record in on_cpu(SMALL, lambda *what: told.append(what))}
    shares = [done / total for done, total, _ in told]
    assert shares == sorted(shares) and 0 <= shares[0] < shares[-1] < 1
    return records


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "FLEX", ())
        return {record.name: record for record in on_gpu(TINY, silent, Watch())}


def test_every_width_has_its_records(on_a_gpu):
    first = [f"attention-{way}-16" for way in ("forward", "backward")]
    groups = ["attention-grouped-16", "attention-grouped-backward-16"]
    second = ["attention-forward-8", "attention-backward-8"]
    names = ["attention-roof", *first, "attention-versions", *groups]
    assert list(on_a_gpu) == names
    assert list(bench.parts(TINY._replace(widths=(16, 8)))) == [*names, *second]
    roof = on_a_gpu["attention-roof"]
    assert [(r.name, r.unit) for r in roof.results] == [("copy", "B/s"), ("matmul", "FLOP/s")]
    rows = {(r.name, r.who) for r in on_a_gpu["attention-versions"].results}
    assert rows == {(f"T = {n}", who) for n in (8, 16) for who in ("naive", "fa1", "fa2")}


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_we_are_compared_with_the_best_peer(on_a_gpu, way):
    record = on_a_gpu[f"attention-{way}-16"]
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
    record = on_a_gpu[f"attention-grouped-{way}16"]
    names = list(dict.fromkeys(result.name for result in record.results))
    assert names == [f"G = 1, T = {length}" for length in (8, 16)]  # of two heads
    assert all("math" in {r.who for r in record.results if r.name == name} for name in names)


def test_the_heads_that_share_a_kv_head_are_checked_together():
    """Wrong in one head of the group only: its dk is wrong, and no other head's is."""
    q, k, v, do = bench.inputs(TINY._replace(tokens=20, hidden=64), 20, 16, "cpu", kv_heads=2)
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
    monkeypatch.setattr(bench, "_flex", lambda *_: "compiled")
    assert len(bench.FLEX) * 2 <= 8  # causal and not; beyond, torch falls back to what is slow
    assert {width for width, _ in bench.FLEX} <= set(bench.CUDA.widths)
    for T, G, there in ((2048, 16, True), (2048, 4, False), (4096, 16, False)):
        q, k = (torch.empty(8, T, heads, 128, device="meta") for heads in (16, G))
        assert ("flex" in bench.peers(q, k, True)) == there


def test_jobs_are_the_records_one_by_one():
    names = [job.names for job in bench.jobs("cuda")]
    assert names == [(name,) for name in bench.parts(bench.CUDA)]
    assert all(0 < job.seconds <= 120 for job in bench.jobs("cuda"))
    assert [job.names for job in bench.jobs("cpu")] == [(name,) for name in bench.ON_CPU]


def test_rates_count_operations_as_the_papers_do():
    q = torch.empty(2, 8192, 16, 128, device="meta")
    assert bench.work(q, causal=False) == 4 * 2 * 16 * 8192**2 * 128
    assert bench.work(q, causal=True) * 2 == bench.work(q, causal=False)
    (only,) = compared("T = 1", {OURS: [0.5, 0.25]}, 100.0)
    assert only.samples == (200.0, 400.0)


def test_another_version_of_ours_is_timed_and_is_no_peer():
    samples = {OURS: [2.0], "weft, first": [1.0], "flash": [4.0]}
    found = {r.who: r.value for r in compared("T = 1", samples, 100.0)}
    assert found == {OURS: 50.0, "weft, first": 100.0, "flash": 25.0, BEST: 2.0}


def drawn(T=20):
    return bench.inputs(TINY._replace(tokens=T), T, 16, "cpu")


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


@pytest.mark.gpu
def test_a_device_clock_times_what_the_device_does():
    clock = bench.Clock("cuda", warmup=1, repeats=5)
    x, y = (torch.zeros(n, device="cuda") for n in (2**28, 2**20))
    times = clock.samples({"much": lambda: x.add_(1), "little": lambda: y.add_(1)})
    assert len(times["much"]) == len(times["little"]) == 5
    assert median(times["much"]) > 10 * median(times["little"]) > 0
