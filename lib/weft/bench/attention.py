"""Attention measured: on a GPU our kernels beside every peer that runs there, on a CPU the tiles.

`weft bench attention` yields one record after another, the most telling first, so that a run that
is cut short has something to show. In each, all take the same tensors and take turns; what one
computes is compared with the definition before its time counts.
"""

import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache, partial
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from weft.bench.jobs import Job
from weft.bench.record import Record, Result
from weft.kernels.attention import attention, fa1, naive
from weft.meter import live
from weft.ref.attention import attention as reference
from weft.ref.attention import fa2

COMMAND = "weft bench attention"
OURS, BEST = "weft", "weft / best"
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now
Call = Callable[[], object]
Faces = Mapping[str, Callable]


class Sizes(NamedTuple):
    """What is measured. On a GPU each batch has `tokens` tokens and `hidden` = heads times width.

    A contestant is left out of lengths above its `most`: some keep the whole matrix of scores.
    """

    lengths: tuple[int, ...]
    widths: tuple[int, ...] = (64,)
    tokens: int = 16_384
    hidden: int = 2048
    warmup: int = 2
    repeats: int = 10
    tile: int = 128  # of the tiled torch attention
    interpreted: tuple[int, ...] = ()
    square: int = 8192  # the side of a matmul, and with it the bytes that are copied
    kv_heads: tuple[int, ...] = (1, 4, 8)


CPU = Sizes((256, 512, 1024, 2048, 4096), hidden=256, repeats=7, interpreted=(64, 128, 256))
CUDA = Sizes((512, 1024, 2048, 4096, 8192, 16_384, 32_768), widths=(128, 64, 256))
MOST = {"math": 4096, "naive": 8192, "fa1": 4096}
MOST_GROUPED = 8192  # of gradients that are checked for all heads of a group at once
# Widths and lengths: each compiles anew, for many seconds, and after eight torch stops doing so.
FLEX = ((128, 2048), (128, 16_384))
ALONE: Faces = MappingProxyType({OURS: attention})
WRONG = 0.02  # relative error, root of the mean square; rounding to bf16 makes about 0.003


def bench(progress: Progress, sizes: Sizes | None = None) -> Iterator[Record]:
    """All records of the topic, one by one; `progress(done, total, what)` is told how far it is."""
    if torch.cuda.is_available():
        sizes = sizes or CUDA
        yield from on_gpu(sizes, progress, Clock("cuda", sizes.warmup, sizes.repeats))
    else:
        yield from on_cpu(sizes or CPU, progress)


def jobs(device: str | None = None) -> list[Job]:
    """Each record by itself, on `device` "cuda" or "cpu"; None is the GPU where there is one."""
    if (device or ("cuda" if torch.cuda.is_available() else "cpu")) == "cpu":
        return [Job((name,), partial(on_cpu, CPU, only=(name,))) for name in ON_CPU]
    return part_jobs("attention", COMMAND, CUDA, parts(CUDA))


# --- on a GPU -------------------------------------------------------------------------------------


class Part(NamedTuple):
    """What makes a record: a measurement at a width, its title, and about how many seconds."""

    measure: Callable[["Clock", Sizes, int], list[Result]]
    width: int
    title: str
    seconds: float


def parts(sizes: Sizes) -> dict[str, Part]:
    """The roof, then the first width in all respects, then forward and backward of the others."""
    first, *others = sizes.widths
    roof = "What this GPU reaches without attention: a copy, and a bf16 matmul"

    def titled(what: str, width: int) -> str:
        heads = sizes.hidden // width
        return f"{what}, bf16, {heads} heads of width {width}, {sizes.tokens} tokens"

    forward = partial(beside_peers, way="forward")
    backward = partial(beside_peers, way="backward")
    made = {"attention-roof": Part(lambda clock, sizes, _: ceilings(clock, sizes), first, roof, 5)}
    made |= {
        name: Part(measure, first, titled(title, first), seconds)
        for name, measure, title, seconds in (
            (f"attention-forward-{first}", forward, "Attention forward", 90),
            (f"attention-backward-{first}", backward, "Attention backward", 80),
            ("attention-versions", versions, "Attention forward by version, not causal", 30),
            (f"attention-grouped-{first}", grouped, "Causal attention, grouped heads", 15),
            (f"attention-grouped-backward-{first}", grouped_backward,
             "Causal attention backward, grouped heads", 25),
        )
    }  # fmt: skip
    for width in others:
        for way, measure in (("forward", forward), ("backward", backward)):
            title = titled(f"Attention {way}", width)
            made[f"attention-{way}-{width}"] = Part(measure, width, title, 25)
    return made


def on_gpu(sizes: Sizes, progress: Progress, clock: "Clock") -> Iterator[Record]:
    """The records of all parts, one after the other."""
    found = parts(sizes)
    for i, (name, part) in enumerate(found.items()):
        progress(i, len(found), part.title)
        yield recorded(name, part, "attention", COMMAND, sizes, clock)


def recorded(
    name: str, part: Part, topic: str, command: str, sizes: Sizes, clock: "Clock"
) -> Record:
    """Measure a part."""
    found = part.measure(clock, sizes, part.width)
    return Record.here(name, part.title, topic, command, found, clock.device)


def part_jobs(topic: str, command: str, sizes: Sizes, found: dict[str, Part]) -> list[Job]:
    """Parts as jobs for a GPU, each with a clock of its own when its time comes."""

    def make(name: str, progress: Progress) -> Iterator[Record]:
        clock = Clock("cuda", sizes.warmup, sizes.repeats)
        yield recorded(name, found[name], topic, command, sizes, clock)

    return [Job((name,), partial(make, name), part.seconds) for name, part in found.items()]


def beside_peers(
    clock: "Clock", sizes: Sizes, width: int, way: str, ours: Faces = ALONE
) -> list[Result]:
    """Rates of every contestant at every length, and ours over the best peer's, turn by turn."""
    results = []
    for causal in (False, True):
        for length in sizes.lengths:
            name = f"{'causal' if causal else 'full'}, T = {length}"
            tensors = inputs(sizes, length, width, clock.device)
            results += one_size(clock, name, tensors, causal, way, ours)
    return results


def grouped(
    clock: "Clock", sizes: Sizes, width: int, way: str = "forward", ours: Faces = ALONE
) -> list[Result]:
    """The same where G kv heads serve all query heads, causal, for each G that divides them."""
    results = []
    for G in (G for G in sizes.kv_heads if (sizes.hidden // width) % G == 0):
        for length in sizes.lengths:
            if way == "backward" and length > MOST_GROUPED:
                continue
            tensors = inputs(sizes, length, width, clock.device, kv_heads=G)
            results += one_size(clock, f"G = {G}, T = {length}", tensors, True, way, ours)
    return results


def grouped_backward(clock: "Clock", sizes: Sizes, width: int) -> list[Result]:
    """Gradients with grouped heads: those of a kv head are sums over the heads that it serves."""
    return grouped(clock, sizes, width, "backward")


def one_size(
    clock: "Clock", name: str, tensors: Sequence[Tensor], causal: bool, way: str, ours: Faces
) -> list[Result]:
    """Everyone who is right on these q, k, v and do, in turns."""
    q, k, v, do = tensors
    faces = {who: partial(face, causal=causal) for who, face in ours.items()}
    calls = accepted(faces | peers(q, k, causal), (q, k, v), do, causal, way, ours)
    flops = work(q, causal) * (1 if way == "forward" else 2.5)
    return compared(name, clock.samples(calls), flops)


def versions(clock: "Clock", sizes: Sizes, width: int) -> list[Result]:
    """Naive, FlashAttention-1 and FlashAttention-2, forward and not causal."""
    results = []
    for length in sizes.lengths:
        q, k, v, do = inputs(sizes, length, width, clock.device)
        faces = {"naive": naive.attention, "fa1": fa1.attention}
        faces = {who: face for who, face in faces.items() if length <= MOST[who]}
        faces["fa2"] = attention
        samples = clock.samples(accepted(faces, (q, k, v), do, False, "forward"))
        for who, times in samples.items():
            rates = [work(q, False) / t for t in times]
            results.append(Result.of(f"T = {length}", who, "FLOP/s", rates))
    return results


def ceilings(clock: "Clock", sizes: Sizes) -> list[Result]:
    """Bytes per second of a copy, read and written, and operations per second of a matmul."""
    n = sizes.square
    a, b = (torch.randn(n, n, device=clock.device, dtype=torch.bfloat16) for _ in range(2))
    x = torch.empty(n * n * 8, device=clock.device, dtype=torch.uint8)
    y = torch.empty_like(x)
    samples = clock.samples({"copy": lambda: y.copy_(x), "matmul": lambda: a @ b})
    copied, multiplied = (samples[name] for name in ("copy", "matmul"))
    return [
        Result.of("copy", "torch", "B/s", [2 * x.numel() / t for t in copied]),
        Result.of("matmul", "torch", "FLOP/s", [2 * n**3 / t for t in multiplied]),
    ]


def inputs(
    sizes: Sizes, length: int, width: int, device: str, kv_heads: int | None = None
) -> list[Tensor]:
    """q, k, v and the gradient of o, [B, T, H or G, K], the first three to be differentiated."""
    dice = torch.Generator(device).manual_seed(length)
    B, H = max(1, sizes.tokens // length), sizes.hidden // width
    G = kv_heads or H
    made = [
        torch.randn(B, length, n, width, device=device, generator=dice, dtype=torch.bfloat16)
        for n in (H, G, G, H)
    ]
    return [x.requires_grad_() for x in made[:3]] + made[3:]


def work(q: Tensor, causal: bool) -> float:
    """Operations of a forward pass as the papers count them: half where it is causal."""
    B, T, H, K = q.shape
    return 4 * B * H * T * T * K / (2 if causal else 1)


def peers(q: Tensor, k: Tensor, causal: bool) -> dict[str, Callable]:
    """Who else computes attention of such tensors: functions of q, k, v, each [B, T, H or G, K]."""
    length, width, shared = q.shape[1], q.shape[3], q.shape[2] != k.shape[2]
    found: dict[str, Callable] = {
        name: partial(_sdpa, backend, causal)
        for name, backend in (
            ("cudnn", SDPBackend.CUDNN_ATTENTION),
            ("flash", SDPBackend.FLASH_ATTENTION),
            ("efficient", SDPBackend.EFFICIENT_ATTENTION),
            ("math", SDPBackend.MATH),
        )
    }
    if (width, length) in FLEX and not shared:
        found["flex"] = _flex(length, causal, str(q.device))
    try:
        from flash_attn_interface import flash_attn_func

        found["flash 3"] = partial(flash_attn_func, causal=causal)
    except ImportError:
        pass
    try:
        from xformers.ops import LowerTriangularMask, memory_efficient_attention

        bias = LowerTriangularMask() if causal else None
        found |= {} if shared else {"xformers": partial(memory_efficient_attention, attn_bias=bias)}
    except ImportError:
        pass
    return {name: face for name, face in found.items() if length <= MOST.get(name, length)}


def _sdpa(backend: SDPBackend, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    how = {"enable_gqa": True} if q.shape[2] != k.shape[2] else {}
    with sdpa_kernel(backend):
        o = sdpa(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=causal, **how)
    return o.transpose(1, 2)


@cache
def _flex(length: int, causal: bool, device: str) -> Callable:
    """Compiled once for a length, forward and backward together, which takes many seconds."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = None
    if causal:
        mask = create_block_mask(
            lambda b, h, i, j: i >= j, None, None, length, length, device=device
        )
    run = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: run(*(x.transpose(1, 2) for x in (q, k, v)), block_mask=mask).transpose(
        1, 2
    )


# --- whose time counts ----------------------------------------------------------------------------


def accepted(
    faces: dict[str, Callable],
    qkv: Sequence[Tensor],
    do: Tensor,
    causal: bool,
    way: str,
    ours: Container[str] = (OURS, "naive", "fa1", "fa2"),
    wrong: float = WRONG,
) -> dict[str, Call]:
    """What to time of each contestant: those that run here, once they are right.

    Compared are o, or the gradients, of the last head of the first sequence. A peer that this
    machine or version does not have says so by an error and is left out; `ours` are not. A
    relative error above `wrong` is an AssertionError.
    """
    calls, right = {}, None
    many = qkv[0].shape[2] // qkv[1].shape[2] if way == "backward" else 1
    served = (many, 1, 1)  # the last kv head, and as many query heads as what it gives depends on
    shown = served[:1] if way == "forward" else served
    for who, face in faces.items():
        try:
            call = _timed(face, qkv, do, way)
            got = [_last(x, n) for x, n in zip(call(), shown, strict=True)]
        except Exception as error:  # compilers have exceptions of many kinds
            if who in ours:
                raise
            _tell(who, next(iter(str(error).splitlines()), type(error).__name__))
            continue
        if right is None:
            heads = *served[:3], served[0]
            some = (_last(x, n) for x, n in zip((*qkv, do), heads, strict=True))
            right = _defined(*some, causal, way)
        for a, b in zip(got, right, strict=True):
            error = ((a - b).norm() / b.norm()).item()
            if not error <= wrong:
                raise AssertionError(f"{who} is wrong by {error:.3g} of the result, {way}")
        calls[who] = call
    return calls


def _last(x: Tensor, heads: int) -> Tensor:
    """The last heads of the first sequence."""
    return x[:1, :, -heads:].detach()


@cache
def _tell(who: str, why: str) -> None:
    """Say who is left out and why, once."""
    print(f"{who} does not run here: {why}", file=sys.stderr)


def _timed(face: Callable, qkv: Sequence[Tensor], do: Tensor, way: str) -> Callable:
    """One forward pass as in training, or one backward pass through a graph that is kept."""
    if way == "forward":
        return lambda: (face(*qkv),)
    o = face(*qkv)
    return lambda: torch.autograd.grad(o, qkv, do, retain_graph=True)


def _defined(q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool, way: str) -> list[Tensor]:
    """The same by the definition, in float64, or float32 where its matrices would be too large."""
    wide = torch.float64 if q.shape[1] ** 2 * q.shape[2] <= 2**26 else torch.float32
    q, k, v = (x.detach().to(wide).requires_grad_(way == "backward") for x in (q, k, v))
    o = reference(q, k, v, causal)
    return [o] if way == "forward" else list(torch.autograd.grad(o, (q, k, v), do.to(wide)))


def compared(name: str, samples: dict[str, list[float]], flops: float) -> list[Result]:
    """Everyone's rate, and ours over that of the peer with the best median, turn by turn.

    A version of ours that is called "weft, …" is no peer.
    """
    rates = {who: [flops / t for t in times] for who, times in samples.items()}
    results = [Result.of(name, who, "FLOP/s", values) for who, values in rates.items()]
    others = [who for who in rates if not who.startswith(OURS)]
    if others:
        best = max(others, key=lambda who: median(rates[who]))
        ratios = [a / b for a, b in zip(rates[OURS], rates[best], strict=True)]
        results.append(Result.of(name, BEST, "1", ratios))
    return results


class Clock:
    """Seconds on the device, by its own events, with cold caches, everyone in turn.

    Before each sample an array larger than the cache is overwritten, often enough that the
    processor has queued the work before the device gets to it.
    """

    def __init__(self, device: str, warmup: int, repeats: int) -> None:
        self.device, self.warmup, self.repeats = device, warmup, repeats
        self._waste = torch.empty(256 * 2**20, dtype=torch.uint8, device=device)

    def samples(self, calls: dict[str, Call]) -> dict[str, list[float]]:
        """Seconds of each call, by round; every round begins with somebody else."""
        order, times = list(calls), {who: [] for who in calls}
        for i in range(self.warmup + self.repeats):
            order = order[1:] + order[:1]
            turn = {who: self._once(calls[who]) for who in order}
            torch.cuda.synchronize()
            if i >= self.warmup:
                for who, (start, end) in turn.items():
                    times[who].append(start.elapsed_time(end) / 1000)
        return times

    def _once(self, call: Call) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(8):  # half a millisecond on an H200
            self._waste.zero_()
        start.record()
        call()
        end.record()
        return start, end


# --- on a CPU -------------------------------------------------------------------------------------


def on_cpu(sizes: Sizes, progress: Progress, only: Container[str] = ()) -> Iterator[Record]:
    """The tiled attention's time and memory over torch's, and what interpreting a kernel costs."""
    width = sizes.widths[0]
    heads = sizes.hidden // width
    what = f"{heads} heads of width {width}, float32, {torch.get_num_threads()} threads"
    wanted = {name: of for name, of in ON_CPU.items() if not only or name in only}
    for i, (name, (title, measure)) in enumerate(wanted.items()):
        title = f"{title.format(tile=sizes.tile)}: {what}"
        progress(i, len(wanted), title)
        with torch.no_grad():
            found = measure(sizes)
        yield Record.here(name, title, "attention", COMMAND, found)


def tiled(sizes: Sizes) -> list[Result]:
    """Seconds of both, and their ratio pair by pair."""
    return _both(sizes, sizes.lengths, "tiles", partial(_in_tiles, sizes.tile), sizes.repeats)


def interpreted(sizes: Sizes) -> list[Result]:
    """Seconds of our kernel where its programs run one after another, in Python."""
    return _both(sizes, sizes.interpreted, "interpreter", attention, max(3, sizes.repeats // 2))


def memory(sizes: Sizes) -> list[Result]:
    """Bytes alive at the peak: naive attention's matrix, tiles without it, and torch's own."""
    results = []
    for length in sizes.lengths:
        q, k, v = _tensors(sizes, length)
        faces = {"naive": reference, "tiles": partial(_in_tiles, sizes.tile), "torch": _torch}
        peaks = {}
        for who, face in faces.items():
            with live() as alive:
                face(q, k, v)
            peaks[who] = alive.peak
        results += [
            Result.of(f"T = {length}", who, "B", [float(peak)]) for who, peak in peaks.items()
        ]
        ratio = peaks["tiles"] / peaks["torch"]
        results.append(Result.of(f"T = {length}", "tiles / torch", "1", [ratio]))
    return results


ON_CPU: dict[str, tuple[str, Callable[[Sizes], list[Result]]]] = {
    "attention-tiled": ("Attention in tiles of {tile}, in torch", tiled),
    "attention-memory": ("The most memory alive in a forward pass", memory),
    "attention-interpreter": ("Our kernel in Triton's interpreter", interpreted),
}


def _both(sizes: Sizes, lengths, who: str, face: Callable, repeats: int) -> list[Result]:
    results = []
    for length in lengths:
        q, k, v = _tensors(sizes, length)
        calls = {who: partial(face, q, k, v), "torch": partial(_torch, q, k, v)}
        torch.testing.assert_close(calls[who](), calls["torch"](), rtol=1e-4, atol=1e-5)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for i in range(1 + repeats):
            for name in sorted(calls, reverse=bool(i % 2)):
                start = time.perf_counter()
                calls[name]()
                if i:
                    times[name].append(time.perf_counter() - start)
        ratios = [a / b for a, b in zip(times[who], times["torch"], strict=True)]
        name = f"T = {length}"
        results += [Result.of(name, by, "s", seconds) for by, seconds in times.items()]
        results.append(Result.of(name, f"{who} / torch", "1", ratios))
    return results


def _tensors(sizes: Sizes, length: int) -> list[Tensor]:
    dice = torch.Generator().manual_seed(length)
    width = sizes.widths[0]
    return [torch.randn(1, length, sizes.hidden // width, width, generator=dice) for _ in range(3)]


def _torch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return sdpa(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def _in_tiles(tile: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return fa2(q, k, v, Unmetered(), tile, tile)[0]


class Unmetered:
    """Tile memory that counts nothing: a load is a copy, as it is on a GPU."""

    def __enter__(self) -> "Unmetered":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self, x: Tensor) -> Tensor:
        """A copy of x."""
        return x.clone()

    def store(self, x: Tensor, tile: Tensor) -> None:
        """Overwrite x."""
        x.copy_(tile)

    def alloc(self, shape, fill=0.0, dtype=torch.float32, device="cpu") -> Tensor:
        """A new tile."""
        return torch.full(tuple(shape), fill, dtype=dtype, device=device)
