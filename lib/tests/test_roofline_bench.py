"""The roofline benchmark at a small size: what it measures, not how fast that is."""

from statistics import median

import pytest
import torch
from torch.testing import assert_close

from weft.bench import roofline as bench
from weft.bench.clock import OneDevice
from weft.bench.jobs import BenchRun
from weft.bench.record import read
from weft.bench.roofline import (
    BYTES,
    CPU,
    CUDA,
    JOBS,
    LIMIT,
    MAKERS,
    REACHED,
    ROOF,
    RoofSizes,
    Workload,
)
from weft.draw.roofline import of_record, svg, text
from weft.plan.hardware import from_record, size_of
from weft.plan.roofline.work import Work, operation

SMALL = RoofSizes(
    stream=4096,
    squares=(8, 24),
    dtypes=("fp64", "fp32", "fp8"),
    dtype="fp32",
    operations=(
        "vector_add 500",
        "softmax 5 70",
        "layer_norm 5 70",
        "matvec 9 33",
        "matmul 3 9 33",
        "attention 7 11 2 8",
        "flash 7 11 2 8",
        "3*decode 11 6 2 8",
    ),
)
SQUARES = [f"fp32 matmul {n} {n} {n}" for n in SMALL.squares]


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def record(told):
    run = BenchRun("cpu", lambda *what: told.append(what), OneDevice("cpu", 1, 3))
    return JOBS[0].record(run, sizes=SMALL)


def test_the_roof_is_measured_for_every_dtype_that_runs(record, told):
    assert (record.name, record.topic, record.chip) == ("roofline", "roofline", "cpu")
    roof = [(r.name, r.unit) for r in record.results if r.who == ROOF]
    streams = [(name, "B/s") for name in ("copy", "triad", "read")]
    assert roof == [*streams, ("fp64", "FLOP/s"), ("fp32", "FLOP/s")]  # no fp8 on a processor
    shares = [done / total for done, total, _ in told]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] < 1


def test_every_operation_is_under_it_with_all_its_samples(record):
    names = [r.name for r in record.results if r.who == REACHED]
    operations = [f"fp32 {name}" for name in SMALL.operations]
    assert names == [name.replace("32", "64", 1) for name in SQUARES] + SQUARES + operations
    for name in names:
        dtype, _, what = name.partition(" ")
        work = operation(what, dtype)
        reached, moved = record.result(name, REACHED), record.result(name, BYTES)
        assert len(reached.samples) == len(moved.samples) == 3 and min(reached.samples) > 0
        for flops, bytes_ in zip(reached.samples, moved.samples, strict=True):
            assert flops / bytes_ == pytest.approx(work.intensity)


def test_limits_are_by_the_roof_of_the_same_round(record):
    streams = [record.result(name, ROOF) for name in ("copy", "triad", "read")]
    bandwidth = max(streams, key=lambda result: result.value).samples
    for name in [r.name for r in record.results if r.who == REACHED]:
        dtype, _, what = name.partition(" ")
        work, rates = operation(what, dtype), record.result(dtype, ROOF).samples
        limits = [min(r, b * work.intensity) for r, b in zip(rates, bandwidth, strict=True)]
        assert record.result(name, LIMIT).samples == pytest.approx(limits)
        shares = record.result(name, f"{REACHED} / {LIMIT}")
        pairs = zip(record.result(name, REACHED).samples, limits, strict=True)
        assert shares.samples == pytest.approx([mine / most for mine, most in pairs])


def test_the_roof_of_a_dtype_is_its_fastest_square(record):
    best = max((record.result(name, REACHED) for name in SQUARES), key=lambda r: r.value)
    assert record.result("fp32", ROOF).samples == best.samples
    assert best.value == median(best.samples)


def test_a_record_can_be_drawn(record, tmp_path):
    found = read(record.write(tmp_path))
    assert found == record
    chip = from_record(found)
    assert set(chip.rates) == {"fp64", "fp32"}
    assert chip.bandwidth == max(found.result(n, ROOF).value for n in ("copy", "triad", "read"))
    points, roofs, rates = of_record(found)
    assert list(rates) == [name.partition(" ")[2] for name in SQUARES] + list(SMALL.operations)
    assert svg(points, roofs, rates).count("<circle") == 2 * len(points)
    assert "3*decode 11 6 2 8" in text(points, roofs, rates)


def test_the_roof_is_by_medians_and_every_limit_by_its_own_round():
    squares = [Workload(f"square matmul {n} {n} {n}", "fp32", Work(12, 3), None) for n in (1, 2)]
    streams = (("copy", Work(0, 8)), ("triad", Work(2, 12)))
    jobs = [Workload(name, "fp32", work, None) for name, work in streams]
    jobs += [*squares, Workload("dot 2", "fp32", Work(4, 8), None)]
    samples = [[1.0, 2.0, 4.0], [6.0, 2.0, 1.5], [1.0, 2.0, 3.0], [2.4, 2.4, 2.4], [1.0, 2.0, 4.0]]
    found = {(r.name, r.who): r for r in bench.results(jobs, samples, SMALL)}
    assert found["copy", ROOF].samples == (8, 4, 2) and found["triad", ROOF].samples == (2, 6, 8)
    assert found["fp32", ROOF].samples == (12, 6, 4)  # the first square: 6 against 5
    assert found["fp32 dot 2", REACHED].samples == (4, 2, 1)
    assert found["fp32 dot 2", LIMIT].samples == (1, 3, 4)  # by triad: 6 against 4
    assert found["fp32 dot 2", f"{REACHED} / {LIMIT}"].samples == (4, 2 / 3, 1 / 4)


def test_streams_are_counted_as_they_run():
    jobs = {job.name: job for job in bench.prepared(SMALL, OneDevice("cpu", 0, 1))}
    n = SMALL.stream // 4
    works = [jobs[name].work for name in ("copy", "triad", "read")]
    assert works == [Work(0, 8 * n), Work(2 * n, 12 * n), Work(n, 4 * n)]
    copied, summed = jobs["copy"].call(), jobs["triad"].call()
    assert copied.shape == (n,) and bool((summed == 3).all())  # 1 + 2 * 1
    assert jobs["read"].call() == n


# --- what is timed is what is counted -------------------------------------------------------------


def made(name: str, dtype: str = "fp32"):
    """The tensors that a call works on, and what it gives: (arguments by place, result)."""
    kind, *numbers = name.partition("*")[2].split() if "*" in name else name.split()
    batch = {"batch": int(name.partition("*")[0])} if "*" in name else {}
    return MAKERS[kind](*map(int, numbers), dtype, "cpu", **batch)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", SMALL.operations)
def test_a_call_has_tensors_of_the_bytes_that_are_counted(name, dtype):
    """What goes in and comes out, each once: for naive attention also its two T x S matrices."""
    call = made(name, dtype)
    if hasattr(call, "func"):
        inside = [t for t in call.args if isinstance(t, torch.Tensor)]
        inside += [call.keywords.get("out", call())]
        held = sum(t.nbytes for t in inside)
        fresh = name.split()[0] in ("layer_norm", "flash", "3*decode")  # torch has no out for them
        assert fresh != ("out" in call.keywords)
    else:
        cells = [cell.cell_contents for cell in call.__closure__]
        held = sum(t.nbytes for t in cells if isinstance(t, torch.Tensor))
        T, S, H, _ = map(int, name.split()[1:])
        held += 2 * T * S * H * size_of(dtype)  # each is written once and read once
    assert held == operation(name, dtype).bytes


def test_calls_compute_what_they_are_named_after():
    add, add_out = made("vector_add 9"), made("vector_add 9").keywords["out"]
    assert add() is add.keywords["out"] and add_out.shape == (9,)
    assert_close(add(), add.args[0] + add.args[1])
    soft = made("softmax 4 6")
    assert_close(soft().sum(-1), torch.ones(4))
    norm = made("layer_norm 4 50")()
    assert_close(norm.mean(-1), torch.zeros(4), atol=1e-6, rtol=0)
    product = made("matmul 3 5 7")
    assert_close(product(), product.args[0] @ product.args[1])
    assert product().shape == (3, 5) and made("matvec 3 5")().shape == (3,)


def test_both_attentions_and_decoding_have_the_shapes_that_are_counted():
    flash = made("2*flash 7 11 3 8")
    q, k, v = flash.args
    assert q.shape == (2, 3, 7, 8) and k.shape == v.shape == (2, 3, 11, 8)
    weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
    assert_close(flash(), weights @ v)
    step = made("2*decode 11 6 3 8")
    q, k, _ = step.args
    assert q.shape == (2, 3, 2, 8) and k.shape == (2, 3, 11, 8)
    assert step().shape == (2, 3, 2, 8)


def test_naive_attention_goes_through_its_scores():
    call = made("attention 7 11 3 8")
    names = dict(zip(call.__code__.co_freevars, call.__closure__, strict=True))
    q, k, v, scores, weights, o = (
        names[name].cell_contents for name in ("q", "k", "v", "scores", "weights", "o")
    )
    call()
    assert scores.shape == weights.shape == (3, 7, 11)
    assert_close(weights, torch.softmax(q @ k, -1))
    assert_close(o, weights @ v)


def test_tf32_is_asked_for_only_while_it_is_measured():
    seen = []
    before = torch.get_float32_matmul_precision()
    bench._with_tf32(lambda: seen.append(torch.get_float32_matmul_precision()))
    assert seen == ["high"] and torch.get_float32_matmul_precision() == before
    assert bench._matmul(8, 8, 8, "tf32", "cpu") is None
    assert bench._matmul(16, 16, 16, "fp8", "cpu") is None


# --- sizes and turns ------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [CPU, CUDA, SMALL])
@pytest.mark.parametrize("cache", [2**20, 2**25, 2**29])
def test_nothing_that_streams_fits_in_a_cache(sizes, cache):
    found = bench.fitting(sizes, cache)
    assert found.stream >= bench.CACHES * cache and found.stream >= sizes.stream
    for name, before in zip(found.operations, sizes.operations, strict=True):
        kind = name.split()[0].rpartition("*")[2]
        if kind in bench.STREAMING:
            assert operation(name, sizes.dtype).bytes >= bench.CACHES * cache
        else:
            assert name == before
    if cache == 2**20 and sizes is not SMALL:
        assert found == sizes


def test_the_last_cache_of_this_machine_is_known():
    assert 2**16 <= bench.last_cache("cpu") <= 2**34


def test_a_square_that_takes_too_long_is_left_out(monkeypatch):
    clock = OneDevice("cpu", 0, 1)
    monkeypatch.setattr(clock, "begin", lambda call, times: lambda: 0.25)
    some = list(bench.prepared(SMALL._replace(most=0.2), clock))
    assert [one.name for one in some] == ["copy", "triad", "read", *SMALL.operations]


def test_a_dtype_that_cannot_be_multiplied_is_left_out(monkeypatch):
    def no(*sizes) -> None:
        raise RuntimeError("not implemented for 'Double'")

    real = bench._matmul
    monkeypatch.setattr(
        bench, "_matmul", lambda *sizes: (lambda: no()) if "fp64" in sizes else real(*sizes)
    )
    jobs = list(bench.prepared(SMALL._replace(operations=()), OneDevice("cpu", 0, 1)))
    assert [(job.name, job.dtype) for job in jobs[3:]] == [
        (f"square matmul {n} {n} {n}", "fp32") for n in SMALL.squares
    ]


def test_a_dtype_without_a_matmul_has_no_roof_and_nothing_under_it():
    job = Workload("softmax 5 70", "bf16", operation("softmax 5 70", "bf16"), None)
    stream = Workload("copy", "fp32", Work(0, 8), None)
    found = bench.results([stream, job], [[1.0], [1.0]], SMALL._replace(dtypes=("bf16",)))
    assert [(r.name, r.value) for r in found] == [("copy", 8.0)]


@pytest.mark.gpu
def test_a_gpu_is_measured_by_the_same_code():
    sizes = SMALL._replace(squares=(256,), dtypes=("fp32", "tf32", "bf16", "fp8"), dtype="bf16")
    record = JOBS[0].record(BenchRun("cuda", given=OneDevice("cuda", 1, 3)), sizes=sizes)
    assert record.chip != "cpu" and record.result("bf16", ROOF).value > 0
    assert {r.name.split()[0] for r in record.results if r.who == REACHED} >= {"fp32", "bf16"}
    assert all(min(r.samples) > 0 for r in record.results)
