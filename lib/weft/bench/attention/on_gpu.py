"""Rates of attention on a GPU, the most telling record first, for a run that is cut short.

In each record all take the same tensors and take turns, with cold caches; what one computes is
compared with the definition before its time counts.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from weft.bench.attention.contest import OURS, accepted, inputs, peers, work
from weft.bench.clock import OneDevice
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement, rates
from weft.kernels.attention import attention, fa1, naive

BEST = "weft / best"
MOST = {"naive": 8192, "fa1": 4096}  # the longest, for those that take very long or much memory
MOST_GROUPED = 8192  # of gradients that are checked for all heads of a group at once
Faces = Mapping[str, Callable]
ALONE: Faces = MappingProxyType({OURS: attention})


class AttentionSizes(NamedTuple):
    """What is measured: batches of so many tokens, heads times width = `hidden`.

    A copy and a matmul take matrices of side `square`. Kv heads are grouped in each of these ways.
    """

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16_384, 32_768)
    tokens: int = 16_384
    hidden: int = 2048
    square: int = 8192
    kv_heads: tuple[int, ...] = (1, 4, 8)
    warmup: int = 2
    repeats: int = 10


FULL = AttentionSizes()
Measure = Callable[[OneDevice, AttentionSizes, int], list[Measurement]]


def gpu_job(
    name: str,
    measure: Measure,
    title: str,
    width: int | None,
    seconds: float,
    sizes: AttentionSizes = FULL,
    demand: Callable[[], None] = lambda: None,
) -> BenchJob:
    """A record of heads of a width, or of none where it is None; `demand` asks more of the GPU."""

    def measured(run: BenchRun, sizes: AttentionSizes = sizes, width: int | None = width) -> Found:
        if not run.given:
            demand()
        clock = run.clock(sizes.warmup, sizes.repeats, cold=True)
        run.progress(0, 1.0, title)
        found = measure(clock, sizes, width)
        if width is None:
            return title, found
        heads = f"{sizes.hidden // width} heads of width {width}"
        return f"{title}, bf16, {heads}, {sizes.tokens} tokens", found

    return BenchJob(name, measured, ("cuda",), seconds)


def cases(
    sizes: AttentionSizes, width: int, device: str
) -> Iterator[tuple[str, bool, list[Tensor]]]:
    """All that is timed at a width: its name, whether it is causal, and q, k, v and do."""
    for causal in (False, True):
        for length in sizes.lengths:
            name = f"{'causal' if causal else 'full'}, T = {length}"
            yield name, causal, inputs(sizes.tokens, sizes.hidden, length, width, device)


def beside_peers(
    clock: OneDevice, sizes: AttentionSizes, width: int, way: str, ours: Faces = ALONE
) -> list[Measurement]:
    """Rates of every contestant at every length, and ours over the best peer's, turn by turn."""
    results = []
    for name, causal, tensors in cases(sizes, width, clock.device):
        results += one_size(clock, name, tensors, causal, way, ours)
    return results


def grouped(
    clock: OneDevice, sizes: AttentionSizes, width: int, way: str, ours: Faces = ALONE
) -> list[Measurement]:
    """The same where G kv heads serve all query heads, causal, for each G that divides them.

    The gradients of a kv head are sums over the heads that it serves.
    """
    results = []
    for G in (G for G in sizes.kv_heads if (sizes.hidden // width) % G == 0):
        for length in sizes.lengths:
            if way == "backward" and length > MOST_GROUPED:
                continue
            tensors = inputs(sizes.tokens, sizes.hidden, length, width, clock.device, kv_heads=G)
            results += one_size(clock, f"G = {G}, T = {length}", tensors, True, way, ours)
    return results


def one_size(
    clock: OneDevice, name: str, tensors: list[Tensor], causal: bool, way: str, ours: Faces
) -> list[Measurement]:
    """Everyone who is right on these q, k, v and do, in turns."""
    *qkv, do = tensors
    faces = {who: partial(face, causal=causal) for who, face in ours.items()}
    calls = accepted(faces | peers(*qkv[:2], causal), qkv, do, causal, way, ours)
    flops = work(qkv[0], causal) * (1 if way == "forward" else 2.5)
    return compared(name, clock.samples(calls), flops)


def rated(name: str, samples: dict[str, list[float]], flops: float) -> dict[str, Measurement]:
    """Everyone's operations per second."""
    return rates(name, "FLOP/s", dict.fromkeys(samples, flops), samples)


def compared(name: str, samples: dict[str, list[float]], flops: float) -> list[Measurement]:
    """Everyone's rate, and ours over that of the peer with the best median, turn by turn.

    A version of ours that is called "weft, …" is no peer.
    """
    found = rated(name, samples, flops)
    others = [result for who, result in found.items() if not who.startswith(OURS)]
    best = max(others, key=lambda result: result.value, default=None)
    return [*found.values(), *([found[OURS].over(best, BEST)] if best else [])]


def versions(clock: OneDevice, sizes: AttentionSizes, width: int) -> list[Measurement]:
    """Naive, FlashAttention-1 and FlashAttention-2, forward and not causal."""
    results = []
    for length in sizes.lengths:
        *qkv, do = inputs(sizes.tokens, sizes.hidden, length, width, clock.device)
        faces = {"naive": naive.attention, "fa1": fa1.attention}
        faces = {who: face for who, face in faces.items() if length <= MOST[who]}
        faces["fa2"] = attention
        samples = clock.samples(accepted(faces, qkv, do, False, "forward", faces))
        results += rated(f"T = {length}", samples, work(qkv[0], False)).values()
    return results


def ceilings(clock: OneDevice, sizes: AttentionSizes, _: int | None = None) -> list[Measurement]:
    """Bytes per second of a copy, read and written, and operations per second of a matmul."""
    n = sizes.square
    a, b = (torch.randn(n, n, device=clock.device, dtype=torch.bfloat16) for _ in range(2))
    x = torch.empty(n * n * 8, device=clock.device, dtype=torch.uint8)
    y = torch.empty_like(x)
    samples = clock.samples({"copy": lambda: y.copy_(x), "matmul": lambda: a @ b})
    copied, multiplied = (samples[name] for name in ("copy", "matmul"))
    return [
        Measurement.of("copy", "torch", "B/s", [2 * x.numel() / t for t in copied]),
        Measurement.of("matmul", "torch", "FLOP/s", [2 * n**3 / t for t in multiplied]),
    ]


FORWARD, BACKWARD = "Attention forward", "Attention backward"
GROUPED = "Causal attention"
forward, backward = (partial(beside_peers, way=way) for way in ("forward", "backward"))
in_groups, in_groups_backward = (partial(grouped, way=way) for way in ("forward", "backward"))
ROOF = "What this GPU reaches without attention: a copy, and a bf16 matmul"
ON_GPU = (
    gpu_job("attention-roof", ceilings, ROOF, None, 5),
    gpu_job("attention-forward-128", forward, FORWARD, 128, 90),
    gpu_job("attention-backward-128", backward, BACKWARD, 128, 80),
    gpu_job("attention-versions", versions, f"{FORWARD} by version, not causal", 128, 30),
    gpu_job("attention-grouped-128", in_groups, f"{GROUPED}, grouped heads", 128, 15),
    gpu_job(
        "attention-grouped-backward-128", in_groups_backward, f"{GROUPED} backward, grouped heads",
        128, 25,
    ),
    gpu_job("attention-forward-64", forward, FORWARD, 64, 25),
    gpu_job("attention-backward-64", backward, BACKWARD, 64, 25),
    gpu_job("attention-forward-256", forward, FORWARD, 256, 25),
    gpu_job("attention-backward-256", backward, BACKWARD, 256, 25),
)  # fmt: skip
