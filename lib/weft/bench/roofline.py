"""This machine's own roof, and real operations under it, on its processor or its GPU.

`weft bench roofline` streams arrays several times the last cache for the bandwidth, multiplies
square matrices for the rate of each dtype, and times operations whose work `weft.plan.roofline`
counts. Everything takes turns, round after round, and each round's operations are set against
that round's own roof. `weft roofline --record` draws what it wrote.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from weft.bench.record import Record, Result
from weft.plan.hardware import size_of
from weft.plan.roofline import Work, operation

COMMAND = "weft bench roofline"
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


class Sizes(NamedTuple):
    """What is measured: bytes of a streamed array, sides of square matmuls, and operations.

    A matmul is left out where it would take more than `most` seconds, as those of dtypes that a
    processor has to emulate do. A sample repeats its operation for at least `least` seconds.
    """

    stream: int
    squares: tuple[int, ...]
    dtypes: tuple[str, ...]
    dtype: str
    operations: tuple[str, ...]
    warmup: int = 2
    repeats: int = 15
    least: float = 0.02
    most: float = 1.0


CPU = Sizes(
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
CUDA = Sizes(
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

Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now


class Job(NamedTuple):
    """Something to time: its name in the record, its work, the call, and the calls in a sample."""

    name: str
    dtype: str
    work: Work
    call: Callable[[], object]
    calls: int = 1


def bench(
    progress: Progress, sizes: Sizes | None = None, device: str | None = None
) -> list[Record]:
    """The record of this machine: of its GPU if torch sees one, unless `device` says "cpu"."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    sizes = sizes or fitting(CUDA if device == "cuda" else CPU, last_cache(device))
    with torch.inference_mode():
        progress(0, 1.0, "preparing")
        jobs = list(prepared(sizes, device))
        samples = in_turns(jobs, sizes, device, progress)
    threads = f", {torch.get_num_threads()} threads" if device == "cpu" else ""
    title = f"The measured roof, and operations in {sizes.dtype} under it{threads}"
    found = results(jobs, samples, sizes)
    return [Record.here("roofline", title, "roofline", COMMAND, found, device)]


def fitting(sizes: Sizes, cache: int) -> Sizes:
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


def prepared(sizes: Sizes, device: str) -> Iterator[Job]:
    """Every job with its tensors made, and as many calls in a sample as take long enough."""
    for job in (*_streams(sizes, device), *_squares(sizes, device), *_operations(sizes, device)):
        job.call()  # libraries choose and allocate when they are first called
        once = _seconds(job._replace(calls=1), device)
        if job.name.startswith("square") and once > sizes.most:
            continue
        yield job._replace(calls=max(1, ceil(sizes.least / max(once, 1e-7))))


def _streams(sizes: Sizes, device: str) -> Iterator[Job]:
    """Plain streams in fp32: two arrays, three, and one that is only read."""
    n = sizes.stream // size_of("fp32")
    a, b, c = (torch.ones(n, device=device) for _ in range(3))
    yield Job("copy", "fp32", operation(f"copy {n}", "fp32"), partial(c.copy_, a))
    triad = partial(torch.add, a, b, alpha=2.0, out=c)
    yield Job("triad", "fp32", operation(f"triad {n}", "fp32"), triad)
    yield Job("read", "fp32", Work(n, n * size_of("fp32")), partial(torch.sum, a))


def _squares(sizes: Sizes, device: str) -> Iterator[Job]:
    for dtype in sizes.dtypes:
        for side in sizes.squares:
            call = _matmul(side, side, side, dtype, device)
            if call is None or not _runs(call):
                break  # a dtype that this machine has no matmul for
            name = f"matmul {side} {side} {side}"
            yield Job(f"square {name}", dtype, operation(name, dtype), call)


def _runs(call: Callable[[], object]) -> bool:
    try:
        call()
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _operations(sizes: Sizes, device: str) -> Iterator[Job]:
    for name in sizes.operations:
        times, _, rest = name.rpartition("*")
        kind, *numbers = rest.split()
        batch = {"batch": int(times)} if times else {}
        call = MAKERS[kind](*map(int, numbers), sizes.dtype, device, **batch)
        yield Job(name, sizes.dtype, operation(name, sizes.dtype), call)


def _random(*shape: int, dtype: str, device: str) -> Tensor:
    """Small numbers, so that no sum of a matmul in half precision grows out of its range."""
    dice = torch.Generator(device).manual_seed(0)
    made = torch.rand(shape, generator=dice, device=device) - 0.5
    return made.to(TORCH[dtype])


def _vector_add(n: int, dtype: str, device: str) -> Callable[[], object]:
    a, b = (_random(n, dtype=dtype, device=device) for _ in range(2))
    return partial(torch.add, a, b, out=torch.empty_like(a))


def _softmax(rows: int, n: int, dtype: str, device: str) -> Callable[[], object]:
    x = _random(rows, n, dtype=dtype, device=device)
    return partial(torch.softmax, x, -1, out=torch.empty_like(x))


def _layer_norm(rows: int, n: int, dtype: str, device: str) -> Callable[[], object]:
    """torch has no place to name for the result: on a processor it lies in fresh pages."""
    x = _random(rows, n, dtype=dtype, device=device)
    weight, bias = torch.ones_like(x[0]), torch.zeros_like(x[0])
    return partial(layer_norm, x, (n,), weight, bias)


def _matvec(m: int, n: int, dtype: str, device: str) -> Callable[[], object]:
    a, x = (_random(*shape, dtype=dtype, device=device) for shape in ((m, n), (n,)))
    return partial(torch.mv, a, x, out=a.new_empty(m))


def _matmul(m: int, n: int, k: int, dtype: str, device: str) -> Callable[[], object] | None:
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


def _with_tf32(call: Callable[[], object]) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    call()
    torch.set_float32_matmul_precision(before)


def _attention(
    T: int, S: int, H: int, K: int, dtype: str, device: str, batch: int = 1
) -> Callable[[], object]:
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


def _flash(
    T: int, S: int, H: int, K: int, dtype: str, device: str, batch: int = 1
) -> Callable[[], object]:
    """torch's own, by whichever of its fused kernels it chooses."""
    make = partial(_random, dtype=dtype, device=device)
    q, k, v = make(batch, H, T, K), make(batch, H, S, K), make(batch, H, S, K)
    return partial(scaled_dot_product_attention, q, k, v)


def _decode(
    S: int, H: int, G: int, K: int, dtype: str, device: str, batch: int = 1
) -> Callable[[], object]:
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


# --- how it is timed ------------------------------------------------------------------------------


def in_turns(jobs: list[Job], sizes: Sizes, device: str, progress: Progress) -> list[list[float]]:
    """Seconds of one call of each job, round by round; every second round goes backwards."""
    samples: list[list[float]] = [[] for _ in jobs]
    rounds = sizes.warmup + sizes.repeats
    for i in range(rounds):
        progress(i, rounds, f"round {i + 1} of {rounds}")
        for at in range(len(jobs)) if i % 2 else reversed(range(len(jobs))):
            samples[at].append(_seconds(jobs[at], device))
    return [times[sizes.warmup :] for times in samples]


def _seconds(job: Job, device: str) -> float:
    """Of one call, from a sample of several in a row; a GPU's by its own clock."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(job.calls):
            job.call()
        return (time.perf_counter() - start) / job.calls
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(job.calls):
        job.call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / job.calls


# --- what comes of it -----------------------------------------------------------------------------


def results(jobs: list[Job], samples: list[list[float]], sizes: Sizes) -> list[Result]:
    """The roof, then every operation: reached, in bytes per second, attainable, and the ratio.

    The rate of a dtype is that of its fastest square matmul, the bandwidth that of the fastest
    stream, each by its median; an operation's limit in one round is by the same two in that round.
    """
    timed = list(zip(jobs, samples, strict=True))
    streams = [(job, times) for job, times in timed if job.name in STREAMS]
    found = [Result.of(job.name, ROOF, "B/s", _bytes(job, times)) for job, times in streams]
    bandwidth = max(found, key=lambda result: result.value).samples
    rates = {}
    for dtype in sizes.dtypes:
        squares = [(j, t) for j, t in timed if j.name.startswith("square") and j.dtype == dtype]
        if squares:
            rates[dtype] = max((_flops(*each) for each in squares), key=median)
            found.append(Result.of(dtype, ROOF, "FLOP/s", rates[dtype]))
    for job, times in timed:
        if job.name in STREAMS or job.dtype not in rates:
            continue
        name = f"{job.dtype} {job.name.removeprefix('square ')}"
        reached, limits = _flops(job, times), []
        for rate, stream in zip(rates[job.dtype], bandwidth, strict=True):
            limits.append(min(rate, stream * job.work.intensity))
        shares = [a / b for a, b in zip(reached, limits, strict=True)]
        found += [
            Result.of(name, REACHED, "FLOP/s", reached),
            Result.of(name, BYTES, "B/s", _bytes(job, times)),
            Result.of(name, LIMIT, "FLOP/s", limits),
            Result.of(name, f"{REACHED} / {LIMIT}", "1", shares),
        ]
    return found


def _flops(job: Job, times: list[float]) -> list[float]:
    return [job.work.flops / time for time in times]


def _bytes(job: Job, times: list[float]) -> list[float]:
    return [job.work.bytes / time for time in times]
