"""FlashAttention-3 measured on a Hopper GPU: version by version, beside every peer, and in FP8.

The peers and the check of what they compute are those of `weft.bench.attention`: all take the
same random tensors and take turns, and a result that is wrong stops the benchmark.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from weft.bench.attention import (
    OURS,
    AttentionSizes,
    accepted,
    beside_peers,
    cases,
    ceilings,
    gpu_job,
    grouped,
    rated,
    work,
)
from weft.bench.clock import OneDevice
from weft.bench.record import Measurement
from weft.kernels import hopper
from weft.kernels.hopper import fp8

FULL = AttentionSizes(repeats=15)
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


def roof(clock: OneDevice, sizes: AttentionSizes, _: int | None) -> list[Measurement]:
    """Bytes per second of a copy, and operations per second of a matmul in bf16 and in e4m3."""
    found, n = ceilings(clock, sizes), sizes.square
    a, b = (torch.randn(n, n, device=clock.device).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=clock.device)
    multiply = partial(torch._scaled_mm, a, b.T, one, one, out_dtype=torch.bfloat16)
    (times,) = clock.samples({"torch": multiply}).values()
    return [
        *found,
        Measurement.of("matmul, e4m3", "torch", "FLOP/s", [2 * n**3 / t for t in times]),
    ]


def versions(clock: OneDevice, sizes: AttentionSizes, width: int) -> list[Measurement]:
    """What each version of the forward pass reaches, causal and not."""
    results = []
    for name, causal, (*qkv, do) in cases(sizes, width, clock.device):
        faces = {who: partial(face, causal=causal) for who, face in VERSIONS.items()}
        calls = accepted(faces, qkv, do, causal, "forward", ours=faces)
        results += rated(name, clock.samples(calls), work(qkv[0], causal)).values()
    return results


def backward(clock: OneDevice, sizes: AttentionSizes, width: int) -> list[Measurement]:
    """The gradients beside those of all peers."""
    ours = BACKWARDS if width in hopper.FUSED else FORWARDS
    return beside_peers(clock, sizes, width, "backward", ours)


@torch.no_grad()
def eight_bits(clock: OneDevice, sizes: AttentionSizes, width: int) -> list[Measurement]:
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
        found = rated(name, clock.samples(calls), work(qkv[0], causal))
        results += [*found.values(), found[EIGHT].over(found[SIXTEEN])]
    return results


def _attend(rounded: fp8.Quantized, causal: bool, q: Tensor, k: Tensor, _: Tensor) -> Tensor:
    """The kernel alone, of numbers that have been rounded before."""
    return fp8.attend(rounded, k.shape[1], causal, q.shape[3] ** -0.5, q.dtype)[0]


FORWARD, BACKWARD = "FlashAttention-3 forward", "FlashAttention-3 backward"
GROUPED = "grouped heads, causal"
forward = partial(beside_peers, way="forward", ours=FORWARDS)
in_groups = partial(grouped, way="forward", ours=FORWARDS)
in_groups_backward = partial(grouped, way="backward", ours=BACKWARDS)
_job = partial(gpu_job, sizes=FULL, demand=demand_hopper)
ROOF = "What this GPU reaches: a copy, and matmuls"
SPEED = (  # the most telling first, for a run that is cut short
    _job("hopper-roof", roof, ROOF, None, 5),
    _job("hopper-forward-128", forward, FORWARD, 128, 70),
    _job("hopper-backward-128", backward, BACKWARD, 128, 70),
    _job("hopper-versions", versions, f"{FORWARD}, by version", 128, 50),
    _job("hopper-fp8-128", eight_bits, f"{FORWARD} in FP8", 128, 40),
    _job("hopper-grouped-128", in_groups, f"{FORWARD}, {GROUPED}", 128, 25),
    _job("hopper-grouped-backward-128", in_groups_backward, f"{BACKWARD}, {GROUPED}", 128, 40),
    _job("hopper-forward-64", forward, FORWARD, 64, 25),
    _job("hopper-backward-64", backward, BACKWARD, 64, 40),
    _job("hopper-forward-256", forward, FORWARD, 256, 25),
    _job("hopper-backward-256", backward, BACKWARD, 256, 40),
    _job("hopper-fp8-64", eight_bits, f"{FORWARD} in FP8", 64, 30),
    _job("hopper-fp8-256", eight_bits, f"{FORWARD} in FP8", 256, 30),
)
