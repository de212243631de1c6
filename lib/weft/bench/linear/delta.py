"""Rates of the delta rule's kernels on a GPU, beside flash-linear-attention's and softmax's.

As in `kernels`, from which the tensors and the clock come; keys have length 1, and half of each
correction is written, on average.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.linear.kernels import (
    CHECKED,
    FLA,
    FULL,
    OURS,
    SHARE,
    SOFTMAX,
    WRONG,
    KernelSizes,
    inputs,
    softmax,
    timed,
)
from weft.bench.record import rates
from weft.kernels.linear import delta
from weft.ref.linear import delta as reference

RULES = {"delta": "The delta rule", "gated": "The delta rule with a decay for each head"}


def delta_inputs(
    sizes: KernelSizes, length: int, width: int, rule: str, device: str
) -> list[Tensor]:
    """q, k, v, beta, perhaps the logarithms of the decays, and the gradient of o."""
    made = inputs(sizes, length, width, "gate", device)
    q, k, v, log_decay, do = (x.detach() for x in made)
    dice = torch.Generator(device).manual_seed(length)
    beta = torch.rand(log_decay.shape, device=device, generator=dice)
    decays = [log_decay] if rule == "gated" else []
    inside = [q, normalize(k, dim=-1), v, beta, *decays]
    return [*(x.requires_grad_() for x in inside), do]


def delta_faces(rule: str) -> dict[str, Callable]:
    """Who computes the rule: ours, and flash-linear-attention where it is there."""
    found: dict[str, Callable] = {OURS: delta.chunked}
    try:
        from fla.ops.delta_rule import chunk_delta_rule
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    except ImportError:
        return found

    def theirs(q, k, v, beta, log_decay=None):
        if log_decay is None:
            return chunk_delta_rule(q, k, v, beta, scale=1.0)[0]
        return chunk_gated_delta_rule(q, k, v, g=log_decay, beta=beta, scale=1.0)[0]

    return found | {FLA: theirs}


def right(who: str, face: Callable, given: list[Tensor]) -> None:
    """Compare o and the gradients with the reference; AssertionError if one of them differs."""
    few = [x[:1, :CHECKED, -1:].detach().requires_grad_() for x in given]
    wide = [x.detach().double().requires_grad_() for x in few]
    got, wanted = face(*few[:-1]), reference.chunked(*wide[:-1])
    pairs = zip(
        (got, *torch.autograd.grad(got, few[:-1], few[-1])),
        (wanted, *torch.autograd.grad(wanted, wide[:-1], wide[-1])),
        strict=True,
    )
    for a, b in pairs:
        error = ((a.double() - b).norm() / b.norm()).item()
        if not error <= WRONG:
            raise AssertionError(f"{who} is wrong by {error:.3g} of the result, the delta rule")


def measured(
    run: BenchRun, sizes: KernelSizes = FULL, rule: str = "gated", way: str = "forward",
    width: int = 128,
) -> Found:  # fmt: skip
    """Tokens per second of everyone, and ours over flash-linear-attention's, turn by turn."""
    clock, results = run.clock(sizes.warmup, sizes.repeats, cold=True), []
    for length in run.each(sizes.lengths, "sequences of {} tokens"):
        given = delta_inputs(sizes, length, width, rule, clock.device)
        contest = delta_faces(rule)
        for who, face in contest.items():
            right(who, face, given)
        calls = {who: timed(face, given, way) for who, face in contest.items()}
        calls[SOFTMAX] = timed(softmax, [*given[:3], given[-1]], way)
        done = dict.fromkeys(calls, float(given[0].shape[0] * length))
        found = rates(f"T = {length}", "token/s", done, clock.samples(calls))
        share = [found[OURS].over(found[FLA], SHARE)] if FLA in found else []
        results += [*found.values(), *share]
    heads = f"{sizes.hidden // width} heads of width {width}"
    return f"{RULES[rule]}, {way}, bf16, {heads}, {sizes.tokens} tokens", results


def delta_job(rule: str, way: str, width: int) -> BenchJob:
    """The record of a rule, forward or backward, at a width of heads."""
    name = "delta" if rule == "delta" else f"{rule}-delta"
    measure = partial(measured, rule=rule, way=way, width=width)
    return BenchJob(f"linear-{name}-{way}-{width}", measure, ("cuda",), 60)


DELTA = tuple(
    delta_job(rule, way, width)
    for rule, width in (("gated", 128), ("delta", 128), ("gated", 64))
    for way in ("forward", "backward")
)
