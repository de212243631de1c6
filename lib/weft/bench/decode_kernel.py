"""Paged decoding on a GPU beside torch's own attention, as a share of the bandwidth of a copy.

What counts is how fast the cache is read: its bytes over the time. Ours finds its blocks through
a table of random order. The peers are spared that: they get the same keys and values in a row, in
the layout that they like best; in two cases a compiled FlexAttention is among them, where it runs.
Everything is recorded as a CUDA graph, so that no launch is waited for, over several caches in
turns that are larger than the chip's own together, and the peers take turns in every round.
"""

import time
from collections.abc import Callable
from functools import cache, cached_property, partial
from math import ceil
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from weft.bench.record import Record, Result
from weft.kernels.decode import paged_attention, per_head
from weft.ref.decode import paged_attention as reference

COMMAND = "weft bench decode_kernel"
OURS, FIRST, COPY = "weft", "weft, a program per head", "copy"
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now


class Case(NamedTuple):
    """B sequences of S tokens, H heads on G; `ragged` lengths go from an eighth of S to S."""

    B: int
    S: int
    H: int
    G: int
    ragged: bool = False

    def __str__(self) -> str:
        lengths = f"{self.S // 8} to {self.S}" if self.ragged else f"{self.S}"
        return f"{self.B} × {lengths}, {self.H} heads on {self.G}"


class Sizes(NamedTuple):
    """What is timed, and where; a sample takes at least `least` seconds."""

    cases: tuple[Case, ...] = (
        Case(1, 8192, 32, 8),
        Case(1, 131072, 32, 8),
        Case(8, 32768, 32, 8),
        Case(64, 4096, 32, 8),
        Case(256, 1024, 32, 8),
        Case(64, 8192, 32, 8, ragged=True),
        Case(32, 4096, 32, 32),
        Case(32, 8192, 64, 8),
        Case(64, 16384, 64, 1),
    )
    K: int = 128
    block: int = 16
    dtype: torch.dtype = torch.bfloat16
    copied: int = 2**30
    warmup: int = 3
    repeats: int = 20
    least: float = 0.01
    device: str = "cuda"


FULL = Sizes()
FLEX = (Case(64, 4096, 32, 8), Case(32, 8192, 64, 8))  # each compiles anew, for many seconds


def bench(progress: Progress, sizes: Sizes = FULL) -> list[Record]:
    """The record of the kernels on this machine's GPU; ValueError where there is none."""
    if sizes.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("this needs a GPU: torch sees no CUDA device")
    results = []
    with torch.inference_mode():
        for i, case in enumerate(sizes.cases):
            progress(i, len(sizes.cases), str(case))
            results += measured(case, sizes)
    dtype = str(sizes.dtype).removeprefix("torch.")
    title = (
        f"Reading the cache while decoding: {dtype}, heads of width {sizes.K}, blocks of "
        f"{sizes.block}"
    )
    return [Record.here("decode-kernel", title, "decode", COMMAND, results, sizes.device)]


def measured(case: Case, sizes: Sizes) -> list[Result]:
    """Bytes of cache per second by everybody who can do the case; ours over the copy's and best."""
    caches = [Cache(case, sizes, seed=0)]
    while len(caches) * caches[0].bytes < 4 * _last_cache(sizes.device):
        caches.append(Cache(case, sizes, seed=len(caches)))
    calls = {who: [partial(way, cache) for cache in caches] for who, way in ways(case).items()}
    calls = {who: each for who, each in calls.items() if _can(each[0])}
    _demand_equal({who: each[0]() for who, each in calls.items()}, caches[0])
    source = torch.zeros(sizes.copied, dtype=torch.uint8, device=sizes.device)
    calls[COPY] = [partial(torch.empty_like(source).copy_, source)]
    runs = {who: _recorded(each, sizes.device) for who, each in calls.items()}
    moved = dict.fromkeys(runs, sum(cache.bytes for cache in caches)) | {COPY: 2 * sizes.copied}
    rates = {
        who: [moved[who] / seconds for seconds in times]
        for who, times in in_turns(runs, sizes).items()
    }
    results = [Result.of(str(case), who, "B/s", samples) for who, samples in rates.items()]
    peers = [who for who in rates if who not in (OURS, FIRST, COPY)]
    best = [max(peers, key=lambda who: median(rates[who]))] if peers else []
    for whose, name in zip([COPY, *best], (COPY, "best peer"), strict=False):
        ratio = [ours / other for ours, other in zip(rates[OURS], rates[whose], strict=True)]
        results.append(Result.of(str(case), f"{OURS} / {name}", "1", ratio))
    return results


# --- what is read, and by whom --------------------------------------------------------------------


class Cache:
    """One cache in blocks of random order with its table, and the same tokens in rows."""

    def __init__(self, case: Case, sizes: Sizes, seed: int):
        B, S, H, G, ragged = case
        K, block, device = sizes.K, sizes.block, sizes.device
        dice = torch.Generator(device).manual_seed(seed)
        make = partial(torch.randn, generator=dice, device=device, dtype=sizes.dtype)
        most = ceil(S / block)
        self.q = make(B, 1, H, K)
        self.k, self.v = make(B * most, block, G, K), make(B * most, block, G, K)
        deal = torch.randperm(B * most, generator=dice, device=device)
        self.table = deal.view(B, most).int()
        lengths = torch.linspace(S // 8, S, B) if ragged else torch.full((B,), S)
        self.lengths = lengths.int().to(device)
        self.bytes = int(self.lengths.sum()) * 2 * G * K * self.k.element_size()

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor]:
        """Keys and values as [B, G, S, K], for sequences of one length."""
        S = int(self.lengths[0])
        pieces = (cache[self.table.long()].flatten(1, 2)[:, :S] for cache in (self.k, self.v))
        k, v = (x.transpose(1, 2).contiguous() for x in pieces)
        return k, v

    @property
    def call(self) -> tuple[Tensor, ...]:
        """The arguments of paged attention."""
        return self.q, self.k, self.v, self.table, self.lengths


def ways(case: Case) -> dict[str, Callable[[Cache], Tensor]]:
    """Who can be asked, ours first; torch's only for sequences of one length. [B, 1, H, K] each."""
    asked: dict[str, Callable[[Cache], Tensor]] = {
        OURS: lambda cache: paged_attention(*cache.call),
        FIRST: lambda cache: per_head(*cache.call),
    }
    if not case.ragged:
        for name, backend in BACKENDS.items():
            asked[f"torch, {name}"] = partial(_grouped, backend=backend)
            if case.H > case.G:
                asked[f"torch, {name}, heads as queries"] = partial(_folded, backend=backend)
        if case in FLEX:
            asked["torch, flex"] = _flex
    return asked


def _grouped(cache: Cache, backend: SDPBackend) -> Tensor:
    with sdpa_kernel(backend):
        q = cache.q.transpose(1, 2)
        return scaled_dot_product_attention(q, *cache.rows, enable_gqa=True).transpose(1, 2)


def _folded(cache: Cache, backend: SDPBackend) -> Tensor:
    """The heads of a group as so many queries of one head: every key is then read once."""
    q = cache.q[:, 0].unflatten(1, (cache.k.shape[2], -1))  # [B, G, H / G, K]
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, *cache.rows).flatten(1, 2)[:, None]


def _flex(cache: Cache) -> Tensor:
    if cache.q.device.type == "cpu":
        raise RuntimeError("compiled for a GPU only")
    return _compiled()(cache.q.transpose(1, 2), *cache.rows, enable_gqa=True).transpose(1, 2)


@cache
def _compiled() -> Callable:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def _can(call: Callable[[], Tensor]) -> bool:
    """Whether it runs at all: not every back end takes every shape."""
    try:
        call()
    except Exception:  # torch.compile has exceptions of many kinds
        return False
    return True


def _demand_equal(results: dict[str, Tensor], cache: Cache) -> None:
    """Rates of programs that do not do the same would mean nothing."""
    some = cache.q[:2], cache.k, cache.v, cache.table[:2], cache.lengths[:2]
    exact = reference(*(x.float() if x.is_floating_point() else x for x in some))
    near = 0.02 * exact.abs().max().item()  # of many tokens the mean is small
    for who, got in results.items():
        torch.testing.assert_close(
            got[:2].float(), exact, rtol=0, atol=near, msg=f"{who} gives another result"
        )


# --- how it is timed ------------------------------------------------------------------------------


def _recorded(calls: list[Callable[[], Tensor]], device: str) -> Callable[[], None]:
    """All calls as one graph, so that the processor's part in launching them is left out."""

    def run() -> None:
        for call in calls:
            call()

    if device == "cpu":
        return run
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def in_turns(runs: dict[str, Callable[[], None]], sizes: Sizes) -> dict[str, list[float]]:
    """Seconds of one run by everybody, round by round; every second round goes backwards."""
    repeat = {
        who: ceil(sizes.least / max(1e-6, _seconds(run, 1, sizes))) for who, run in runs.items()
    }
    times: dict[str, list[float]] = {who: [] for who in runs}
    for i in range(sizes.warmup + sizes.repeats):
        for who in runs if i % 2 else reversed(runs):
            times[who].append(_seconds(runs[who], repeat[who], sizes))
    return {who: samples[sizes.warmup :] for who, samples in times.items()}


def _seconds(run: Callable[[], None], times: int, sizes: Sizes) -> float:
    """Of one run, from several in a row; a GPU's by its own clock."""
    if sizes.device == "cpu":
        start = time.perf_counter()
        for _ in range(times):
            run()
        return (time.perf_counter() - start) / times
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(times):
        run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / times


def _last_cache(device: str) -> int:
    """Bytes of the last cache before memory; of no consequence where nothing is really timed."""
    return torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 0
