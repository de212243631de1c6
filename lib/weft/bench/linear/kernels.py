"""Rates of the chunked forms on a GPU, beside flash-linear-attention's and beside softmax's.

All take the same tensors and take turns, with cold caches; what one computes is compared with the
reference before its time counts. Softmax computes something else: what it is compared for is how
long a sequence has to be for a state to pay.
"""

from collections.abc import Callable
from functools import partial
from math import log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import logsigmoid, scaled_dot_product_attention

from weft.bench.clock import Call, OneDevice
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement, rates
from weft.kernels import retention
from weft.kernels.linear import chunked, gated
from weft.plan.linear import DECAYS
from weft.ref.linear import gated as reference

OURS, FLA, SOFTMAX = "weft", "fla", "softmax, flash"
SHARE = f"{OURS} / {FLA}"
WRONG = 0.02  # relative error, root of the mean square; rounding to bf16 makes about 0.003
CHECKED = 512  # tokens


class KernelSizes(NamedTuple):
    """Batches of so many tokens in sequences of these lengths, heads times width = `hidden`."""

    lengths: tuple[int, ...] = (2048, 4096, 8192, 16_384, 32_768, 65_536)
    tokens: int = 65_536
    hidden: int = 2048
    warmup: int = 2
    repeats: int = 10


FULL = KernelSizes()
PLAIN = partial(chunked, feature="identity", normalize=False)


def inputs(sizes: KernelSizes, length: int, width: int, rule: str, device: str) -> list[Tensor]:
    """q, k, v, perhaps the logarithms of the decays, and the gradient of o.

    All but the last are to be differentiated. Keys have a norm of about 1, and decays are those
    of a trained gate: the sigmoid's root of order 16.
    """
    dice = torch.Generator(device).manual_seed(length)
    shape = max(1, sizes.tokens // length), length, sizes.hidden // width
    *qkv, do = (
        torch.randn(*shape, width, device=device, generator=dice, dtype=torch.bfloat16)
        for _ in range(4)
    )
    qkv[1] *= width**-0.5
    each = {"gate": (), "channels": (width,)}.get(rule)
    if each is not None:
        qkv.append(logsigmoid(torch.randn(*shape, *each, device=device, generator=dice)) / 16)
    return [*(x.requires_grad_() for x in qkv), do]


def faces(rule: str) -> dict[str, Callable]:
    """Who computes a rule, without a scale: ours, and flash-linear-attention where it is there."""
    ours = {"plain": PLAIN, "retention": retention.chunked}.get(rule, gated.chunked)
    found: dict[str, Callable] = {OURS: ours}
    try:
        from fla.ops.gla import chunk_gla
        from fla.ops.linear_attn import chunk_linear_attn
        from fla.ops.retention import chunk_retention
        from fla.ops.simple_gla import chunk_simple_gla
    except ImportError:
        return found
    theirs = {
        "plain": partial(chunk_linear_attn, normalize=False),
        "retention": chunk_retention,
        "gate": chunk_simple_gla,
        "channels": chunk_gla,
    }[rule]
    return found | {FLA: lambda *given: theirs(*given, scale=1.0)[0]}


def timed(face: Callable, given: list[Tensor], way: str) -> Call:
    """A call that gives (o,), or the gradients of all but the last, from which o was computed."""
    *inside, do = given
    if way == "forward":
        with torch.no_grad():
            inside = [x.detach() for x in inside]
        return lambda: (face(*inside),)
    o = face(*inside)
    return lambda: torch.autograd.grad(o, inside, do, retain_graph=True)


def check(who: str, rule: str, face: Callable, given: list[Tensor]) -> None:
    """Compare o and the gradients with the reference; AssertionError if one of them differs.

    For a sequence as short as CHECKED, and one head, the last of those that are timed.
    """
    few = [x[:1, :CHECKED, -1:].detach().requires_grad_() for x in given]
    wide = [x.detach().double().requires_grad_() for x in few]
    if len(few) == 4:  # q, k, v and do
        fade = log(DECAYS(1)[0]) if rule == "retention" else 0.0
        right = reference.chunked(*wide[:3], wide[0].new_full(wide[0].shape[:3], fade))
    else:
        right = reference.chunked(*wide[:4])
    got = face(*few[:-1])
    pairs = zip(
        (got, *torch.autograd.grad(got, few[:-1], few[-1])),
        (right, *torch.autograd.grad(right, wide[:-1], wide[-1])),
        strict=True,
    )
    for a, b in pairs:
        error = ((a.double() - b).norm() / b.norm()).item()
        if not error <= WRONG:
            raise AssertionError(f"{who} is wrong by {error:.3g} of the result, {rule}")


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention as torch has it: FlashAttention."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        o = scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True)
    return o.transpose(1, 2)


def beside_peers(
    clock: OneDevice, name: str, given: list[Tensor], rule: str, way: str
) -> list[Measurement]:
    """Tokens per second of everyone, and ours over flash-linear-attention's, turn by turn."""
    contest = faces(rule)
    for who, face in contest.items():
        check(who, rule, face, given)
    calls = {who: timed(face, given, way) for who, face in contest.items()}
    calls[SOFTMAX] = timed(softmax, [*given[:3], given[-1]], way)
    B, T = given[0].shape[:2]
    found = rates(name, "token/s", dict.fromkeys(calls, float(B * T)), clock.samples(calls))
    share = [found[OURS].over(found[FLA], SHARE)] if FLA in found else []
    return [*found.values(), *share]


def kernel_job(rule: str, way: str, width: int, seconds: float) -> BenchJob:
    """The record of a rule, forward or backward, at a width of heads."""

    def measured(run: BenchRun, sizes: KernelSizes = FULL, width: int = width) -> Found:
        clock, results = run.clock(sizes.warmup, sizes.repeats, cold=True), []
        for length in run.each(sizes.lengths, "sequences of {} tokens"):
            given = inputs(sizes, length, width, rule, clock.device)
            results += beside_peers(clock, f"T = {length}", given, rule, way)
        heads = f"{sizes.hidden // width} heads of width {width}"
        title = f"{RULES[rule]}, {way}, bf16, {heads}, {sizes.tokens} tokens"
        return title, results

    return BenchJob(f"linear-{rule}-{way}-{width}", measured, ("cuda",), seconds)


RULES = {
    "gate": "Linear attention with a decay for each head",
    "channels": "Linear attention with a decay for each channel",
    "retention": "Retention",
    "plain": "Linear attention without decay",
}
KERNELS = tuple(
    kernel_job(rule, way, width, 60)
    for rule, width in (
        ("gate", 128), ("channels", 128), ("retention", 128), ("plain", 128), ("gate", 64),
        ("gate", 256),
    )
    for way in ("forward", "backward")
)  # fmt: skip
