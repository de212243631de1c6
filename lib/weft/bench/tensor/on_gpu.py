"""The fused layers on a GPU, as a share of a copy's bandwidth, beside torch's and its compiler's.

A rate counts the bytes that cannot be avoided, those of `weft.plan.tensor.fused_work`, over the
time: who moves more has a lower one. All take the same numbers in bf16 and take turns, with cold
caches; what one computes is compared with torch's operations in fp32 before its time counts.
Liger's and Quack's kernels take part where they are installed. Some of Liger's write over what
they are given, so each is given its own.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from weft.bench.clock import Call
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement, rates
from weft.kernels import tensor as kernels
from weft.kernels.tensor import VERSIONS
from weft.plan.tensor import fused_work

OURS, TORCH, COMPILED, COPY = "weft", "torch", "torch.compile", "copy"
LIGER, QUACK = "Liger", "Quack"
FORWARD, BACKWARD, BOTH = "forward", "backward", "forward and backward"
WRONG = 0.02  # relative error, root of the mean square; rounding to bf16 makes about 0.003
EPS = 1e-6
Results = tuple[Tensor, ...]
Face = Callable[..., Results]  # of all that is inside, leaves of the graph


class FusedSizes(NamedTuple):
    """Rows of these widths, as many as make so many numbers; and bytes of a copy."""

    widths: tuple[int, ...]
    numbers: int = 2**28
    copied: int = 2**30
    rounds: tuple[int, int] = (3, 15)


NORM = FusedSizes((4096, 1024, 2048, 8192, 16_384))  # the goal's first
SWIGLU = FusedSizes((14_336, 3584, 8192, 28_672))
SCORES = FusedSizes((131_072, 32_768, 65_536, 262_144), numbers=2**30)


def size(layer: str, way: str, width: int) -> str:
    """What a measurement is called.

    >>> size("norm", FORWARD, 4096)
    'forward, D = 4096'
    """
    letter = {"norm": "D", "swiglu": "F", "cross_entropy": "N"}[layer]
    return f"{way}, {letter} = {width}"


def beside_a_copy(run: BenchRun, sizes: FusedSizes, layer: str) -> list[Measurement]:
    """Bytes per second of everybody by width and way, and ours over each and over the copy's."""
    clock, results = run.clock(*sizes.rounds, cold=True), []
    source = torch.ones(sizes.copied, dtype=torch.uint8, device=clock.device)
    copy = partial(torch.empty_like(source).copy_, source)
    for width in run.each(sizes.widths, "rows of {}"):
        tokens = sizes.numbers // width
        torch._dynamo.reset()  # it compiles a function for eight shapes, and then no more
        for way in WAYS[layer]:
            calls = dict(accepted(CONTESTS[layer](tokens, width, way, clock.device)))
            done: dict[str, float] = dict.fromkeys(calls, float(least(layer, tokens, width, way)))
            done[COPY] = 2.0 * sizes.copied
            name = size(layer, way, width)
            found = rates(name, "B/s", done, clock.samples(calls | {COPY: copy}))
            results += found.values()
            results += [found[OURS].over(found[who]) for who in found if who != OURS]
            del calls
    return results


def least(layer: str, tokens: int, width: int, way: str) -> int:
    """Bytes that nobody can avoid."""
    passes = {FORWARD: (False,), BACKWARD: (True,), BOTH: (False, True)}[way]
    return sum(fused_work(layer, tokens, width, backward=one).bytes for one in passes)


# --- who takes part -------------------------------------------------------------------------------

Contest = Iterator[tuple[str, Call]]  # the first is what is right, and is not timed


def norms(tokens: int, width: int, way: str, device: str) -> Contest:
    """RMSNorm of x + residual, which is a result too, in a forward or a backward pass."""
    x, residual, *back = drawn(device, *[(tokens, width)] * 4)
    inside = x, drawn(device, (width,))[0], residual
    faces: dict[str, Callable[[], Face]] = {
        OURS: lambda: partial(kernels.rms_norm, eps=EPS),
        TORCH: lambda: torchs_norm,
        COMPILED: lambda: compiled(torchs_norm, device),
        LIGER: ligers_norm,
        QUACK: quacks_norm,
    }
    return contested(partial(VERSIONS["rms_norm"]["plain"], eps=EPS), faces, inside, back, way)


def torchs_norm(x: Tensor, weight: Tensor, residual: Tensor) -> Results:
    """Two of torch's operations."""
    total = x + residual
    return functional.rms_norm(total, weight.shape, weight, EPS), total


def ligers_norm() -> Face:
    """Liger's fused kernel, computing in fp32 as the others."""
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    how = EPS, 0.0, "gemma", False
    return lambda x, w, residual: LigerFusedAddRMSNormFunction.apply(x, residual, w, *how)


def quacks_norm() -> Face:
    """Quack's fused kernel."""
    from quack import rmsnorm

    return lambda x, w, residual: rmsnorm(x, w, residual=residual, eps=EPS, prenorm=True)


def swiglus(tokens: int, width: int, way: str, device: str) -> Contest:
    """SwiGLU of gate and up, which are halves of one matrix."""
    (back,) = drawn(device, (tokens, width))
    inside = drawn(device, (tokens, 2 * width))[0].chunk(2, -1)
    faces: dict[str, Callable[[], Face]] = {
        OURS: lambda: alone(kernels.swiglu),
        TORCH: lambda: alone(torchs_swiglu),
        COMPILED: lambda: compiled(alone(torchs_swiglu), device),
        LIGER: ligers_swiglu,
    }
    right = alone(lambda gate, up: torchs_swiglu(gate.float(), up.float()))
    return contested(right, faces, inside, [back], way)


def torchs_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Two of torch's operations."""
    return functional.silu(gate) * up


def ligers_swiglu() -> Face:
    """Liger's kernel."""
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return alone(LigerSiLUMulFunction.apply)


def alone(face: Callable[..., Tensor]) -> Face:
    """A function's result as the only one of several."""
    return lambda *inside: (face(*inside),)


def losses(tokens: int, width: int, way: str, device: str) -> Contest:
    """The mean cross-entropy, and the gradient of the scores; a rank's columns are all there are.

    Liger's forward pass has the gradient already, in place, and so is only in both together.
    """
    scores = drawn(device, (tokens, width))[0].requires_grad_()
    dice = torch.Generator(device).manual_seed(1)
    targets = torch.randint(width, (tokens,), generator=dice, device=device)
    yield "", partial(by_rows, scores.detach(), targets, way)
    yield OURS, partial(ours_loss, scores.detach(), targets, way)
    yield TORCH, both(functional.cross_entropy, scores, targets, way)
    yield f"{TORCH}, fp32", both(wide_loss, scores, targets, way)
    yield COMPILED, both(compiled(wide_loss, device), scores, targets, way)
    if way == BOTH and (face := installed(LIGER, ligers_loss)):
        yield LIGER, both(face, scores.detach().clone().requires_grad_(), targets, way)
    if face := installed(QUACK, quacks_loss):
        yield QUACK, both(face, scores, targets, way)


def wide_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """As most trainers write it, of scores in fp32."""
    return functional.cross_entropy(scores.float(), targets)


def ours_loss(scores: Tensor, targets: Tensor, way: str) -> Results:
    """The two kernels as weft.run.tensor.cross_entropy calls them."""
    part = kernels.vocabulary_part(scores, targets)
    loss = part.loss.mean()
    if way == FORWARD:
        return (loss,)
    slope = torch.full_like(loss, 1 / len(targets))
    return loss, kernels.scores_gradient(scores, targets, part.lse, slope)


def ligers_loss() -> Callable[[Tensor, Tensor], Tensor]:
    """Liger's kernel, the loss alone."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    return lambda scores, targets: LigerCrossEntropyFunction.apply(scores, targets, None)[0]


def quacks_loss() -> Callable[[Tensor, Tensor], Tensor]:
    """Quack's kernel."""
    from quack import cross_entropy

    return cross_entropy


def both(loss: Callable, scores: Tensor, targets: Tensor, way: str) -> Call:
    """A call that gives the loss, and the gradient if it is asked for."""
    if way == FORWARD:
        return lambda: (loss(scores, targets),)

    def call() -> Results:
        found = loss(scores, targets)
        return found.detach(), *torch.autograd.grad(found, scores)

    return call


ROWS = 2**26  # scores that are computed in fp32 at once


def by_rows(scores: Tensor, targets: Tensor, way: str) -> Results:
    """The loss and the gradient in fp32, some rows at a time, for there are many scores."""
    some = max(1, ROWS // scores.shape[1])
    loss, gradient = scores.new_zeros((), dtype=torch.float32), torch.empty_like(scores)
    for x, t, dx in zip(*(one.split(some) for one in (scores, targets, gradient)), strict=True):
        wide = x.float()
        loss += functional.cross_entropy(wide, t, reduction="sum") / len(targets)
        odds = wide.softmax(-1)
        odds[torch.arange(len(t), device=t.device), t] -= 1
        dx.copy_(odds / len(targets))
    return (loss,) if way == FORWARD else (loss, gradient)


WAYS = {"norm": (FORWARD, BACKWARD), "swiglu": (FORWARD, BACKWARD)}
WAYS["cross_entropy"] = FORWARD, BOTH
CONTESTS = {"norm": norms, "swiglu": swiglus, "cross_entropy": losses}


# --- what they are given, and whose time counts ---------------------------------------------------


def drawn(device: str, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Random numbers in bf16, each tensor its own."""
    dice = torch.Generator(device).manual_seed(0)
    like = {"dtype": torch.bfloat16, "device": device, "generator": dice}
    return [torch.randn(shape, **like) for shape in shapes]


def compiled(face: Callable, device: str) -> Callable:
    """By torch's compiler, for one shape; on a processor as it is."""
    return torch.compile(face, dynamic=False) if device == "cuda" else face


def contested(
    right: Face,
    faces: dict[str, Callable[[], Face]],
    inside: tuple[Tensor, ...],
    back: list[Tensor],
    way: str,
) -> Contest:
    """Calls of everybody who is installed, each on its own leaves, the right one first."""
    wide = [one.float() for one in inside]
    yield "", timed(right, wide, [one.float() for one in back], way)
    for who, find in faces.items():
        if face := installed(who, find):
            own = [one.clone() for one in inside] if who == LIGER else list(inside)
            yield who, timed(face, own, back, way)


def timed(face: Face, inside: list[Tensor], back: list[Tensor], way: str) -> Call:
    """A forward pass as in training, or a backward pass through a graph that is kept."""
    leaves = [one.detach().requires_grad_() for one in inside]
    if way == FORWARD:
        return lambda: tuple(face(*leaves))
    kept: list[Results] = []

    def call() -> Results:
        if not kept:
            kept.append(tuple(face(*leaves)))
        return torch.autograd.grad(kept[0], leaves, back, retain_graph=True)

    return call


def installed(who: str, find: Callable) -> Callable | None:
    """A peer's function, or None where it is not installed."""
    try:
        return find()
    except ImportError as error:
        tell(who, str(error))
        return None


def accepted(contest: Contest) -> Iterator[tuple[str, Call]]:
    """Those that run here, once they are right, which the first is; ours must run."""
    _, known = next(contest)
    right = [one.detach() for one in known()]
    for who, call in contest:
        try:
            made = call()
        except Exception as error:  # compilers have exceptions of many kinds
            if who == OURS:
                raise
            tell(who, str(error))
            continue
        for one, other in zip(made, right, strict=True):
            gap = (one.detach() - other).norm(dtype=torch.float32)
            error = (gap / other.norm(dtype=torch.float32)).item()
            if not error <= WRONG:
                raise AssertionError(f"{who} is wrong by {error:.3g} of the result")
        yield who, call


@cache
def tell(who: str, why: str) -> None:
    """Say on stderr who is left out, once."""
    why = next(iter(why.splitlines()), "no reason given")
    print(f"{who} is left out: {why[:200]}", file=sys.stderr)


# --- the records ----------------------------------------------------------------------------------


def norm(run: BenchRun, sizes: FusedSizes = NORM) -> Found:
    """RMSNorm with the residual's sum."""
    title = "RMSNorm of x + residual, bf16: bytes that it cannot avoid, over its time"
    return title, beside_a_copy(run, sizes, "norm")


def swiglu(run: BenchRun, sizes: FusedSizes = SWIGLU) -> Found:
    """SwiGLU."""
    title = "SwiGLU, bf16: bytes that it cannot avoid, over its time"
    return title, beside_a_copy(run, sizes, "swiglu")


def cross_entropy(run: BenchRun, sizes: FusedSizes = SCORES) -> Found:
    """The cross-entropy over a rank's part of the vocabulary."""
    title = "Cross-entropy of N words, bf16: bytes that it cannot avoid, over its time"
    return title, beside_a_copy(run, sizes, "cross_entropy")


FUSED = (
    BenchJob("tensor-norm", norm, ("cuda",), 120),
    BenchJob("tensor-swiglu", swiglu, ("cuda",), 90),
    BenchJob("tensor-cross-entropy", cross_entropy, ("cuda",), 120),
)
