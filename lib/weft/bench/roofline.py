"""This machine's own roof, and real operations under it, on its processor or its GPU.

`weft bench roofline` streams arrays several times the last cache for the bandwidth, multiplies
square matrices for the rate of each dtype, and times operations whose work `weft.plan.roofline`
counts. Everything takes turns, round after round, and each round's operations are set against
that round's own roof. `weft roofline --record` draws what it wrote.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from weft.bench.clock import Call, OneDevice
from weft.bench.jobs import BOTH, BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.plan.hardware import size_of
from weft.plan.roofline import Work, operation

TORCH = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
}
STREAMING = ("vector_add", "softmax", "layer_norm", "matvec", "decode")
STREAMS = ("copy", "triad", "read")
ROOF, REACHED, BYTES, LIMIT = "roof", "reached", "bytes", "attainable"
CACHES = 4  # how many times the last cache an array is that is streamed
UNKNOWN = 32 * 2**20  # bytes of a last cache that nobody tells us about


class RoofSizes(NamedTuple):
    """What is measured: bytes of a streamed array, sides of square matmuls, and operations.

    A matmul is left out where it would take more than `most` seconds, as those of dtypes that a
    processor has to emulate do.
    """

    stream: int
    squares: tuple[int, ...]
    dtypes: tuple[str, ...]
    dtype: str
    operations: tuple[str, ...]
    most: float = 1.0


CPU = RoofSizes(
    stream=CACHES * UNKNOWN,
    squares=(128, 256, 512, 1024, 2048),
    dtypes=("fp64", "fp32", "bf16"),
    dtype="fp32",
    operations=(
        "vector_add 33554432",
        "softmax 8192 4096",
        "layer_norm 8192 4096",
        "matvec 8192 8192",
        "matmul 4 8192 8192",
        "matmul 32 8192 8192",
        "attention 2048 2048 8 64",
        "flash 2048 2048 8 64",
        "8*decode 4096 32 8 64",
        "8*decode 4096 32 32 64",
    ),
)
CUDA = RoofSizes(
    stream=2**30,
    squares=(1024, 2048, 4096, 8192, 16384),
    dtypes=("fp32", "tf32", "fp16", "bf16", "fp8"),
    dtype="bf16",
    operations=(
        "vector_add 536870912",
        "softmax 65536 4096",
        "layer_norm 65536 4096",
        "matvec 16384 16384",
        "matmul 16 16384 16384",
        "matmul 128 16384 16384",
        "matmul 512 16384 16384",
        "attention 8192 8192 16 128",
        "flash 8192 8192 16 128",
        "32*decode 8192 32 8 128",
        "32*decode 8192 32 32 128",
    ),
)


class Workload(NamedTuple):
    """Something to time: its name in the record, its work, and the call."""

    name: str
    dtype: str
    work: Work
    call: Call


def measured(run: BenchRun, sizes: RoofSizes | None = None) -> Found:
    """The roof of the GPU or the processor, and operations under it.

    The sizes are, unless they are given, those for the device, grown beyond its cache.
    """
    device, clock = run.device, run.clock(2, 15, least=0.02)
    sizes = sizes or fitting(CUDA if device == "cuda" else CPU, last_cache(device))
    with torch.inference_mode():
        run.progress(0, 1.0, "preparing")
        some = list(prepared(sizes, clock))
        calls = dict(enumerate(one.call for one in some))
        samples = clock.samples(calls, lambda i, of: run.progress(i, of, f"round {i + 1} of {of}"))
    threads = f", {torch.get_num_threads()} threads" if device == "cpu" else ""
    title = f"The measured roof, and operations in {sizes.dtype} under it{threads}"
    return title, results(some, list(samples.values()), sizes)


JOBS = (BenchJob("roofline", measured, BOTH, seconds=60),)


def fitting(sizes: RoofSizes, cache: int) -> RoofSizes:
    """The same where no stream and no operation that only streams would fit in so large a cache."""
    least = CACHES * cache
    operations = tuple(_grown(name, sizes.dtype, least) for name in sizes.operations)
    return sizes._replace(stream=max(sizes.stream, least), operations=operations)


def _grown(name: str, dtype: str, least: int) -> str:
    """An operation that moves so many bytes or more, by a multiple of its first size."""
    kind, first, *rest = name.split()
    grown, times = name, 1
    while kind.rpartition("*")[2] in STREAMING and operation(grown, dtype).bytes < least:
        times = max(times + 1, ceil(times * least / operation(grown, dtype).bytes))
        grown = " ".join([kind, str(times * int(first)), *rest])
    return grown


def last_cache(device: str) -> int:
    """Bytes of the last cache before memory."""
    if device == "cuda":
        return torch.cuda.get_device_properties(0).L2_cache_size
    found = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        units = {"K": 2**10, "M": 2**20, "G": 2**30}
        found.append(int(text.rstrip("KMG")) * units.get(text[-1:], 1))
    return max(found, default=UNKNOWN)


# --- what is timed --------------------------------------------------------------------------------


def prepared(sizes: RoofSizes, clock: OneDevice) -> Iterator[Workload]:
    """Everything with its tensors made, but squares that take too long."""
    device = clock.device
    for one in (*_streams(sizes, device), *_squares(sizes, device), *_operations(sizes, device)):
        one.call()  # libraries choose and allocate when they are first called
        if not one.name.startswith("square") or clock.seconds(one.call) <= sizes.most:
            yield one


def _streams(sizes: RoofSizes, device: str) -> Iterator[Workload]:
    """Plain streams in fp32: two arrays, three, and one that is only read."""
    n = sizes.stream // size_of("fp32")
    a, b, c = (torch.ones(n, device=device) for _ in range(3))
    yield Workload("copy", "fp32", operation(f"copy {n}", "fp32"), partial(c.copy_, a))
    triad = partial(torch.add, a, b, alpha=2.0, out=c)
    yield Workload("triad", "fp32", operation(f"triad {n}", "fp32"), triad)
    yield Workload("read", "fp32", Work(n, n * size_of("fp32")), partial(torch.sum, a))


def _squares(sizes: RoofSizes, device: str) -> Iterator[Workload]:
    for dtype in sizes.dtypes:
        for side in sizes.squares:
            call = _matmul(side, side, side, dtype, device)
            if call is None or not _runs(call):
                break  # a dtype that this machine has no matmul for
            name = f"matmul {side} {side} {side}"
            yield Workload(f"square {name}", dtype, operation(name, dtype), call)


def _runs(call: Call) -> bool:
    try:
        call()
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _operations(sizes: RoofSizes, device: str) -> Iterator[Workload]:
    for name in sizes.operations:
        times, _, rest = name.rpartition("*")
        kind, *numbers = rest.split()
        batch = {"batch": int(times)} if times else {}
        call = MAKERS[kind](*map(int, numbers), sizes.dtype, device, **batch)
        yield Workload(name, sizes.dtype, operation(name, sizes.dtype), call)


def _random(*shape: int, dtype: str, device: str) -> Tensor:
    """Small numbers, so that no sum of a matmul in half precision grows out of its range."""
    dice = torch.Generator(device).manual_seed(0)
    made = torch.rand(shape, generator=dice, device=device) - 0.5
    return made.to(TORCH[dtype])


def _vector_add(n: int, dtype: str, device: str) -> Call:
    a, b = (_random(n, dtype=dtype, device=device) for _ in range(2))
    return partial(torch.add, a, b, out=torch.empty_like(a))


def _softmax(rows: int, n: int, dtype: str, device: str) -> Call:
    x = _random(rows, n, dtype=dtype, device=device)
    return partial(torch.softmax, x, -1, out=torch.empty_like(x))


def _layer_norm(rows: int, n: int, dtype: str, device: str) -> Call:
    """torch has no place to name for the result: on a processor it lies in fresh pages."""
    x = _random(rows, n, dtype=dtype, device=device)
    weight, bias = torch.ones_like(x[0]), torch.zeros_like(x[0])
    return partial(layer_norm, x, (n,), weight, bias)


def _matvec(m: int, n: int, dtype: str, device: str) -> Call:
    a, x = (_random(*shape, dtype=dtype, device=device) for shape in ((m, n), (n,)))
    return partial(torch.mv, a, x, out=a.new_empty(m))


def _matmul(m: int, n: int, k: int, dtype: str, device: str) -> Call | None:
    """C = A B with B stored by columns, as a linear layer has it; None where there is no way."""
    a, b = (_random(*s, dtype=dtype, device=device) for s in ((m, k), (n, k)))
    if dtype == "fp8":
        one = torch.ones((), device=device)
        how = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
        call = partial(torch._scaled_mm, a, b.t(), scale_a=one, scale_b=one, **how)
        return call if device == "cuda" else None
    if dtype == "tf32" and (device == "cpu" or torch.cuda.get_device_capability() < (8, 0)):
        return None
    c = a.new_empty(m, n)
    call = partial(torch.mm, a, b.t(), out=c)
    return partial(_with_tf32, call) if dtype == "tf32" else call


def _with_tf32(call: Call) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    call()
    torch.set_float32_matmul_precision(before)


def _attention(T: int, S: int, H: int, K: int, dtype: str, device: str, batch: int = 1) -> Call:
    """Three passes, with scores and probabilities in memory."""
    make = partial(_random, dtype=dtype, device=device)
    q, k, v = make(batch * H, T, K), make(batch * H, K, S), make(batch * H, S, K)
    scores, weights = (q.new_empty(batch * H, T, S) for _ in range(2))
    o = torch.empty_like(q)

    def call() -> None:
        torch.bmm(q, k, out=scores)
        torch.softmax(scores, -1, out=weights)
        torch.bmm(weights, v, out=o)

    return call


def _flash(T: int, S: int, H: int, K: int, dtype: str, device: str, batch: int = 1) -> Call:
    """torch's own, by whichever of its fused kernels it chooses."""
    make = partial(_random, dtype=dtype, device=device)
    q, k, v = make(batch, H, T, K), make(batch, H, S, K), make(batch, H, S, K)
    return partial(scaled_dot_product_attention, q, k, v)


def _decode(S: int, H: int, G: int, K: int, dtype: str, device: str, batch: int = 1) -> Call:
    """One query of each head; all heads of one group are rows of one small matmul."""
    make = partial(_random, dtype=dtype, device=device)
    q, k, v = make(batch, G, H // G, K), make(batch, G, S, K), make(batch, G, S, K)
    return partial(scaled_dot_product_attention, q, k, v)


MAKERS = {
    "vector_add": _vector_add,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "matvec": _matvec,
    "matmul": _matmul,
    "attention": _attention,
    "flash": _flash,
    "decode": _decode,
}


# --- what comes of it -----------------------------------------------------------------------------


def results(
    some: Sequence[Workload], samples: Sequence[list[float]], sizes: RoofSizes
) -> list[Measurement]:
    """The roof, then every operation: reached, in bytes per second, attainable, and the ratio.

    The rate of a dtype is that of its fastest square matmul, the bandwidth that of the fastest
    stream, each by its median; an operation's limit in one round is by the same two in that round.
    """
    timed = list(zip(some, samples, strict=True))
    streams = [(one, times) for one, times in timed if one.name in STREAMS]
    found = [Measurement.of(one.name, ROOF, "B/s", _bytes(one, times)) for one, times in streams]
    bandwidth = max(found, key=lambda result: result.value).samples
    rates = {}
    for dtype in sizes.dtypes:
        squares = [(x, t) for x, t in timed if x.name.startswith("square") and x.dtype == dtype]
        if squares:
            rates[dtype] = max((_flops(*each) for each in squares), key=median)
            found.append(Measurement.of(dtype, ROOF, "FLOP/s", rates[dtype]))
    for one, times in timed:
        if one.name in STREAMS or one.dtype not in rates:
            continue
        name = f"{one.dtype} {one.name.removeprefix('square ')}"
        roof = zip(rates[one.dtype], bandwidth, strict=True)
        limits = [min(rate, stream * one.work.intensity) for rate, stream in roof]
        reached = Measurement.of(name, REACHED, "FLOP/s", _flops(one, times))
        limit = Measurement.of(name, LIMIT, "FLOP/s", limits)
        moved = Measurement.of(name, BYTES, "B/s", _bytes(one, times))
        found += [reached, moved, limit, reached.over(limit)]
    return found


def _flops(one: Workload, times: list[float]) -> list[float]:
    return [one.work.flops / time for time in times]


def _bytes(one: Workload, times: list[float]) -> list[float]:
    return [one.work.bytes / time for time in times]
