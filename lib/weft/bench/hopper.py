"""FlashAttention-3 measured on a Hopper GPU: version by version, beside every peer, and in FP8.

The clock, the peers and the check of what they compute are those of `weft.bench.attention`: all
take the same random tensors and take turns, and a result that is wrong stops the benchmark.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from weft.bench.attention import (
    CUDA,
    OURS,
    Clock,
    Part,
    Sizes,
    accepted,
    beside_peers,
    ceilings,
    grouped,
    inputs,
    part_jobs,
    work,
)
from weft.bench.jobs import Job
from weft.bench.record import Record, Result
from weft.kernels import hopper
from weft.kernels.hopper import fp8

COMMAND = "weft bench hopper"
SIZES = CUDA._replace(repeats=15)
VERSIONS: dict[str, Callable] = {
    "simple": hopper.simple,
    "specialized": hopper.specialized,
    "pingpong": hopper.pingpong,
    "overlapped": hopper.attention,
}
FORWARDS: dict[str, Callable] = {OURS: hopper.attention}
BACKWARDS: dict[str, Callable] = {  # others are called "weft, …"
    OURS: hopper.attention,
    "weft, in one pass": hopper.fused,
}
EIGHT, ROUNDED, SIXTEEN = "FP8", "FP8, rounding included", "bf16"
WRONG_BY_EIGHT = 0.08  # relative error, root of the mean square; e4m3 makes about 0.05
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now


def bench(progress: Progress, sizes: Sizes = SIZES) -> Iterator[Record]:
    """All records of the topic, one by one; ValueError where there is no Hopper GPU."""
    demand_hopper()
    return on_gpu(sizes, progress, Clock("cuda", sizes.warmup, sizes.repeats))


def jobs(device: str | None = None) -> list[Job]:
    """Each record by itself; none on `device` "cpu", and None demands a Hopper GPU."""
    if device is None:
        demand_hopper()
    return [] if device == "cpu" else part_jobs("hopper", COMMAND, SIZES, parts(SIZES))


def demand_hopper() -> None:
    """ValueError where these kernels cannot run."""
    if not torch.cuda.is_available():
        raise ValueError("this needs a Hopper GPU: torch sees no CUDA device")
    major, minor = torch.cuda.get_device_capability()
    if major != 9:
        name = torch.cuda.get_device_name()
        raise ValueError(
            f"this needs a Hopper GPU, of compute capability 9.0: {name} has {major}.{minor}"
        )


def parts(sizes: Sizes) -> dict[str, Part]:
    """The jobs of these widths, titled with their sizes."""

    def titled(job: Part) -> str:
        if job.measure is roof:
            return job.title
        heads = sizes.hidden // job.width
        return f"{job.title}, bf16, {heads} heads of width {job.width}, {sizes.tokens} tokens"

    return {
        name: job._replace(title=titled(job))
        for name, job in JOBS.items()
        if job.width in sizes.widths
    }


def on_gpu(sizes: Sizes, progress: Progress, clock: Clock) -> Iterator[Record]:
    """The records of these widths, in their order."""
    found = parts(sizes)
    for i, (name, part) in enumerate(found.items()):
        progress(i, len(found), part.title)
        made = part.measure(clock, sizes, part.width)
        yield Record.here(name, part.title, "hopper", COMMAND, made, clock.device)


def roof(clock: Clock, sizes: Sizes, _: int) -> list[Result]:
    """Bytes per second of a copy, and operations per second of a matmul in bf16 and in e4m3."""
    found, n = ceilings(clock, sizes), sizes.square
    a, b = (torch.randn(n, n, device=clock.device).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=clock.device)
    multiply = partial(torch._scaled_mm, a, b.T, one, one, out_dtype=torch.bfloat16)
    (times,) = clock.samples({"torch": multiply}).values()
    return [*found, Result.of("matmul, e4m3", "torch", "FLOP/s", [2 * n**3 / t for t in times])]


def versions(clock: Clock, sizes: Sizes, width: int) -> list[Result]:
    """What each version of the forward pass reaches, causal and not."""
    results = []
    for name, causal, (*qkv, do) in cases(sizes, width, clock.device):
        faces = {who: partial(face, causal=causal) for who, face in VERSIONS.items()}
        calls = accepted(faces, qkv, do, causal, "forward", ours=faces)
        for who, times in clock.samples(calls).items():
            rates = [work(qkv[0], causal) / t for t in times]
            results.append(Result.of(name, who, "FLOP/s", rates))
    return results


def forward(clock: Clock, sizes: Sizes, width: int) -> list[Result]:
    """The last version beside all peers."""
    return beside_peers(clock, sizes, width, "forward", FORWARDS)


def backward(clock: Clock, sizes: Sizes, width: int) -> list[Result]:
    """The gradients beside those of all peers."""
    ours = BACKWARDS if width in hopper.FUSED else {OURS: hopper.attention}
    return beside_peers(clock, sizes, width, "backward", ours)


def in_groups(clock: Clock, sizes: Sizes, width: int) -> list[Result]:
    """The last version where kv heads are shared, causal."""
    return grouped(clock, sizes, width, "forward", FORWARDS)


def in_groups_backward(clock: Clock, sizes: Sizes, width: int) -> list[Result]:
    """Its gradients likewise."""
    return grouped(clock, sizes, width, "backward", BACKWARDS)


@torch.no_grad()
def eight_bits(clock: Clock, sizes: Sizes, width: int) -> list[Result]:
    """FP8 of tensors that are rounded already, FP8 with the rounding in plain torch, and bf16."""
    results = []
    for name, causal, (*qkv, do) in cases(sizes, width, clock.device):
        qkv = [x.detach() for x in qkv]
        rounded = fp8.quantize(*qkv, fp8.signs(width))
        eight = {
            EIGHT: partial(_attend, rounded, causal),
            ROUNDED: partial(fp8.attention, causal=causal),
        }
        sixteen = {SIXTEEN: partial(hopper.attention, causal=causal)}
        calls = accepted(eight, qkv, do, causal, "forward", eight, WRONG_BY_EIGHT)
        calls |= accepted(sixteen, qkv, do, causal, "forward", sixteen)
        rates = {
            who: [work(qkv[0], causal) / t for t in times]
            for who, times in clock.samples(calls).items()
        }
        results += [Result.of(name, who, "FLOP/s", values) for who, values in rates.items()]
        ratios = [a / b for a, b in zip(rates[EIGHT], rates[SIXTEEN], strict=True)]
        results.append(Result.of(name, f"{EIGHT} / {SIXTEEN}", "1", ratios))
    return results


def _attend(rounded: fp8.Quantized, causal: bool, q: Tensor, k: Tensor, _: Tensor) -> Tensor:
    """The kernel alone, of numbers that have been rounded before."""
    return fp8.attend(rounded, k.shape[1], causal, q.shape[3] ** -0.5, q.dtype)[0]


def cases(sizes: Sizes, width: int, device: str) -> Iterator[tuple[str, bool, list[Tensor]]]:
    """All that is timed at a width: its name, whether it is causal, and q, k, v and do."""
    for causal in (False, True):
        for length in sizes.lengths:
            name = f"{'causal' if causal else 'full'}, T = {length}"
            yield name, causal, inputs(sizes, length, width, device)


FORWARD, BACKWARD = "FlashAttention-3 forward", "FlashAttention-3 backward"
GROUPED = "grouped heads, causal"
JOBS = {  # the most telling first, for a run that is cut short
    "hopper-roof": Part(roof, 128, "What this GPU reaches: a copy, and matmuls", 5),
    "hopper-forward-128": Part(forward, 128, FORWARD, 70),
    "hopper-backward-128": Part(backward, 128, BACKWARD, 70),
    "hopper-versions": Part(versions, 128, f"{FORWARD}, by version", 50),
    "hopper-fp8-128": Part(eight_bits, 128, f"{FORWARD} in FP8", 40),
    "hopper-grouped-128": Part(in_groups, 128, f"{FORWARD}, {GROUPED}", 25),
    "hopper-grouped-backward-128": Part(in_groups_backward, 128, f"{BACKWARD}, {GROUPED}", 40),
    "hopper-forward-64": Part(forward, 64, FORWARD, 25),
    "hopper-backward-64": Part(backward, 64, BACKWARD, 40),
    "hopper-forward-256": Part(forward, 256, FORWARD, 25),
    "hopper-backward-256": Part(backward, 256, BACKWARD, 40),
    "hopper-fp8-64": Part(eight_bits, 64, f"{FORWARD} in FP8", 30),
    "hopper-fp8-256": Part(eight_bits, 256, f"{FORWARD} in FP8", 30),
}
