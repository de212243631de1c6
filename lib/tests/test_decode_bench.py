"""The decoding benchmarks at a small size: what they measure, not how fast that is."""

from statistics import median

import pytest
import torch

from weft.bench.clock import OneDevice
from weft.bench.decode import generation, kernel
from weft.bench.decode.generation import BLOCKS, GENERATION, NOTHING, ROWS, GenerationSizes
from weft.bench.decode.kernel import COPY, FIRST, KERNEL, OURS, Cache, CacheRead, ReadSizes
from weft.bench.decode.queue import MEMORY, QueueSizes
from weft.bench.decode.rows import RowCache, prefill_row, step_rows
from weft.bench.jobs import BenchRun
from weft.nn.decode import Decoder, DecoderConfig, PagedCache, generate
from weft.plan.decode.blocks import CacheFull

SMALL = GenerationSizes(
    config=DecoderConfig(layers=2, width=16, heads=4, kv_heads=2, vocab=19, seq=12),
    batch=3,
    contexts=(5, 12),
    block=4,
)
QUEUE = QueueSizes(
    config=DecoderConfig(layers=1, width=16, heads=4, kv_heads=1, vocab=19, seq=24),
    asked=9,
    prompt=4,
    output=6,
    slots=72,
    block=4,
)
TINY = ReadSizes(
    cases=(CacheRead(2, 40, 4, 2), CacheRead(1, 9, 2, 2), CacheRead(3, 33, 4, 1, ragged=True)),
    K=16,
    block=8,
    dtype=torch.float32,
    copied=4096,
)


@pytest.fixture(scope="module")
def records():
    made = {}
    for job, sizes in ((GENERATION, SMALL), (MEMORY, QUEUE)):
        told = []
        run = BenchRun("cpu", lambda *what, told=told: told.append(what), OneDevice("cpu", 1, 3))
        made[job.name] = job.record(run, sizes=sizes)
        assert [done for done, *_ in told] == [0, 1] and {of for _, of, _ in told} == {2}
    return made


def test_there_is_a_record_for_each_question(records):
    assert list(records) == ["decode-generation", "decode-memory"]
    assert {record.topic for record in records.values()} == {"decode"}


def test_every_way_was_timed_as_often(records):
    record = records["decode-generation"]
    for context in SMALL.contexts:
        rates = {
            who: record.result(f"context {context}", who).samples for who in (NOTHING, ROWS, BLOCKS)
        }
        assert all(len(samples) == 3 and min(samples) > 0 for samples in rates.values())
        for who in (NOTHING, ROWS):
            ratio = record.result(f"context {context}", f"{BLOCKS} / {who}").value
            assert ratio == median(a / b for a, b in zip(rates[BLOCKS], rates[who], strict=True))


def test_what_was_counted_is_what_was_simulated(records):
    record = records["decode-memory"]
    for who in (ROWS, BLOCKS):
        for name in ("sequences at a time", "slots with a token", "steps", "evictions"):
            measured, simulated = (record.result(name, x).value for x in (who, f"{who}, simulated"))
            assert measured == pytest.approx(simulated, rel=1e-12)
        assert record.result("tokens made", who).value > 0
    used = [record.result("slots with a token", who).value for who in (ROWS, BLOCKS)]
    assert 0 < used[0] < used[1] <= 1


def test_rows_make_the_tokens_that_blocks_make():
    torch.manual_seed(3)
    model = Decoder(QUEUE.config).double()
    prompts, counts = [[1, 2, 3], [4], [5, 6]], [4, 9, 3]
    rows = RowCache(model, 2, 24)
    with torch.no_grad():
        made = generate(model, rows, prompts, counts, prefill=prefill_row, step=step_rows)
    assert made == generate(model, PagedCache(model, 12, 4), prompts, counts)
    assert sorted(rows.free) == [0, 1]
    rows.add("a", 1), rows.add("b", 2)
    with pytest.raises(CacheFull, match="sequence c finds no row"):
        rows.add("c", 1)


def test_other_scores_stop_the_benchmark():
    scores = {NOTHING: torch.zeros(2, 3), ROWS: torch.zeros(2, 3), BLOCKS: torch.zeros(2, 3)}
    generation.demand_equal(scores)
    scores[BLOCKS][1, 2] = 0.1
    with pytest.raises(AssertionError, match="blocks gives other scores"):
        generation.demand_equal(scores)


# --- the kernels ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kernels():
    return on_a_cpu()


def on_a_cpu():
    run = BenchRun(given=OneDevice("cpu", 0, 2))
    return KERNEL._replace(on=("cpu",)).record(run, sizes=TINY)


def test_everybody_who_can_was_timed(kernels):
    assert (kernels.name, kernels.topic, kernels.chip) == ("decode-kernel", "decode", "cpu")
    who = {}
    for result in kernels.results:
        assert len(result.samples) == 2 and min(result.samples) > 0
        who.setdefault(result.name, []).append(result.who)
    grouped, alone, ragged = who.values()
    assert "torch, math" in grouped and "torch, math, heads as queries" in grouped
    assert "torch, math" in alone and not any("queries" in name for name in alone)
    assert ragged == [OURS, FIRST, COPY, f"{OURS} / {COPY}"]
    assert f"{OURS} / best peer" in grouped and "torch, flex" not in grouped
    assert list(who)[2] == "3 × 4 to 33, 4 heads on 1"


def test_rates_are_of_one_and_the_same_cache(kernels):
    name = str(TINY.cases[0])
    ours, copy = (kernels.result(name, who).samples for who in (OURS, COPY))
    ratio = kernels.result(name, f"{OURS} / {COPY}").samples
    assert ratio == pytest.approx([a / b for a, b in zip(ours, copy, strict=True)])
    peers = [r for r in kernels.results if r.name == name and r.who.startswith("torch")]
    best = max(peers, key=lambda r: r.value)
    found = kernels.result(name, f"{OURS} / best peer").samples
    assert found == pytest.approx([a / b for a, b in zip(ours, best.samples, strict=True)])


def test_bytes_are_those_of_the_tokens():
    for case, tokens in ((CacheRead(2, 40, 4, 2), 80), (CacheRead(3, 33, 4, 1, True), 4 + 18 + 33)):
        assert Cache(case, TINY, "cpu", seed=0).bytes == tokens * 2 * case.G * 16 * 4


def test_another_result_stops_the_benchmark(monkeypatch):
    monkeypatch.setattr(kernel, "per_head", lambda *a: kernel.paged_attention(*a) + 0.1)
    with pytest.raises(AssertionError, match="weft, a program per head gives another result"):
        on_a_cpu()


def test_without_a_gpu_there_is_nothing_to_time(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="needs a GPU"):
        KERNEL.record(BenchRun("cuda"))


@pytest.mark.gpu
def test_on_a_gpu_graphs_are_timed():
    sizes = TINY._replace(dtype=torch.bfloat16, K=64)
    record = KERNEL.record(BenchRun("cuda", given=OneDevice("cuda", 0, 2)), sizes=sizes)
    assert record.machine["chip"] != "cpu" and record.result(str(sizes.cases[0]), OURS).value > 0
