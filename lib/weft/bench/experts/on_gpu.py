"""Rates of the experts' MLP on a GPU: ours by version, beside torch's, cuBLAS's and Liger's.

All take the same tokens and the same choices, sort them themselves and take turns, with cold
caches; what one computes is compared with a loop over experts before its time counts. Two compute
something else: Liger's MLP has a third matrix and SwiGLU, so that it is compared by its own FLOP,
and a dense product of as many FLOP says what the tensor cores do where nothing is sorted.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from weft.bench.clock import Call
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement, rates
from weft.kernels import experts
from weft.kernels.experts import hopper

OURS, TRITON, COPIES = "weft", "weft, Triton", "weft, rows copied"
LOOP, PADDED, TORCH = "cuBLAS, a loop", "cuBLAS, a padded batch", "torch, grouped_mm"
LIGER, DENSE = "Liger, SwiGLU", "one dense product"
ALONE = "one matmul"
WAYS = {"forward": 1.0, "forward and backward": 3.0, ALONE: 0.5}  # and how often as many FLOP
WRONG = 0.02  # relative error, root of the mean square; rounding to bf16 makes about 0.005


class ExpertsShape(NamedTuple):
    """Experts of width H and I, k for each of T tokens; `skew` makes some the choice of most."""

    E: int
    H: int
    I: int  # noqa: E741
    k: int
    T: int
    skew: float = 0.0

    def __str__(self) -> str:
        """As in "E128 H2048 I768 k8 T32768".

        >>> str(ExpertsShape(8, 64, 32, 2, 100, skew=1.0))
        'E8 H64 I32 k2 T100, skewed'
        """
        sizes = (f"{name}{size}" for name, size in zip("EHIkT", self[:5], strict=True))
        return " ".join(sizes) + (", skewed" if self.skew else "")

    @property
    def flops(self) -> int:
        """Of a forward pass with two matrices to an expert."""
        return 4 * self.T * self.k * self.H * self.I


class GroupedSizes(NamedTuple):
    """What is measured: the expert layers of these shapes, the goals' first."""

    shapes: tuple[ExpertsShape, ...] = (
        ExpertsShape(128, 2048, 768, 8, 32_768),  # Qwen3-30B-A3B's
        ExpertsShape(128, 2048, 768, 8, 8192),
        ExpertsShape(128, 2048, 768, 8, 32_768, skew=1.0),
        ExpertsShape(8, 4096, 14_336, 2, 16_384),  # Mixtral-8x7B's
        ExpertsShape(256, 7168, 2048, 8, 8192),  # DeepSeek-V3's
    )
    warmup: int = 3
    repeats: int = 15


FULL = GroupedSizes()


class ExpertsInput(NamedTuple):
    """What everybody is given: tokens, matrices, the gradient of y, and who is chosen how much."""

    x: Tensor
    up: Tensor
    down: Tensor
    dy: Tensor
    expert: Tensor
    weight: Tensor
    kept: Tensor


def inputs(shape: ExpertsShape, device: str) -> ExpertsInput:
    """Random numbers in bf16, of a size that stays about 1; the first three to be differentiated.

    With a skew s the n-th expert is chosen about as 1 / n^s.
    """
    E, H, I, k, T, skew = shape  # noqa: E741
    dice = torch.Generator(device).manual_seed(T)
    draw = partial(torch.randn, generator=dice, device=device)
    x, dy = (draw(T, H, dtype=torch.bfloat16) for _ in range(2))
    up, down = draw(E, H, I, dtype=torch.bfloat16), draw(E, I, H, dtype=torch.bfloat16)
    up, down = up.mul_(H**-0.5).requires_grad_(), down.mul_(I**-0.5).requires_grad_()
    rank = torch.arange(1, E + 1, device=device)
    scores = draw(T, E) - skew * rank.log()
    weight, expert = scores.softmax(-1).topk(k)
    return ExpertsInput(x.requires_grad_(), up, down, dy, expert, weight, expert >= 0)


# --- who computes it ------------------------------------------------------------------------------


def contest(given: ExpertsInput) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Functions of x, up and down that give y for these choices; the first is what is right.

    Ours is the version for Hopper where there is one, and else Triton's.
    """
    expert, weight, kept = given[4:]
    versions = {LOOP: experts.looped, PADDED: experts.padded, COPIES: experts.permuted}
    versions |= {TRITON: experts.mlp, OURS: hopper.mlp if on_hopper() else experts.mlp}
    found = {
        who: lambda x, up, down, face=face: face(x, expert, weight, kept, up, down)
        for who, face in versions.items()
    }
    return found | {TORCH: lambda x, up, down: torchs(x, expert, weight, up, down)}


def on_hopper() -> bool:
    """Whether this GPU has Hopper's instructions."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9


def by_expert(expert: Tensor, E: int) -> tuple[Tensor, Tensor]:
    """Choices in the order of their experts, and where each one's end, int32 as torch asks."""
    chosen, order = expert.flatten().int().sort(stable=True)
    each = torch.arange(E, dtype=torch.int32, device=expert.device)
    return order, torch.searchsorted(chosen, each, right=True).int()


def torchs(x: Tensor, expert: Tensor, weight: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The MLP by torch's grouped matmul, which takes rows in the order of experts: two copies.

    Weighted and summed by a batched product in bf16: one pass, and the fastest that torch has.
    """
    (order, ends), k = by_expert(expert, len(up)), expert.shape[1]
    rows = torchs_matmul(torchs_matmul(x[order // k], up, ends).relu(), down, ends)
    made = torch.empty_like(rows).index_copy(0, order, rows).unflatten(0, (-1, k))
    return torch.bmm(weight.to(x.dtype).unsqueeze(1), made).squeeze(1)


def torchs_matmul(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """torch's grouped matmul, under either of its names."""
    grouped_mm = getattr(functional, "grouped_mm", None) or torch._grouped_mm
    return grouped_mm(x, w, offs=ends)


def matmuls(given: ExpertsInput) -> dict[str, Call]:
    """One matmul of rows that lie in the order of experts, without any copy, to time alone.

    The loop knows the sizes on the host, and so waits for nothing.
    """
    x, up = given.x.detach(), given.up.detach()
    order, ends = by_expert(given.expert, len(up))
    rows, sizes = x[order // given.expert.shape[1]], ends.diff(prepend=ends.new_zeros(1))
    counts, w = sizes.tolist(), torch.randn_like(up[0])
    ours = hopper.grouped_matmul if on_hopper() else experts.grouped_matmul

    def loop() -> tuple[Tensor]:
        return (torch.cat([part @ one for part, one in zip(rows.split(counts), up, strict=True)]),)

    faces: dict[str, Call] = {
        LOOP: loop,
        TRITON: lambda: (experts.grouped_matmul(rows, up, sizes),),
        OURS: lambda: (ours(rows, up, sizes),),
        TORCH: lambda: (torchs_matmul(rows, up, ends),),
    }
    return accepted(faces) | {DENSE: lambda: (rows @ w,)}


def dense(given: ExpertsInput, way: str) -> Call:
    """A product of rows for all choices and a matrix as wide as two experts': the same FLOP."""
    rows = given.expert.numel()
    like = {"dtype": torch.bfloat16, "device": given.x.device, "requires_grad": way != "forward"}
    x = torch.randn(rows, given.up.shape[1], **like)
    w = torch.randn(given.up.shape[1], 2 * given.up.shape[2], **like)
    if way == "forward":
        return lambda: (x @ w,)
    dy = torch.ones(rows, w.shape[1], dtype=x.dtype, device=x.device)
    return lambda: torch.autograd.grad(x @ w, (x, w), dy)


def ligers(given: ExpertsInput, way: str) -> Call | None:
    """Liger's fused MLP, once it is right; None, and why, where it is not there or does not run."""
    try:
        from liger_kernel.ops.fused_moe import LigerFusedMoEFunction
    except ImportError:
        return None
    up = given.up.detach().mT
    matrices = [torch.cat([up, up.flip(1)], 1), given.down.detach().mT.contiguous()]
    inside = [given.x, *(one.requires_grad_() for one in matrices)]
    routes = given.expert.int(), given.weight

    def apply(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        return LigerFusedMoEFunction.apply(x, gate_up, down, *routes)

    call = timed(apply, inside, given.dy, way)
    try:
        (y,) = timed(apply, inside, given.dy, "forward")()
        call()
    except Exception as error:  # compilers have exceptions of many kinds
        return tell(LIGER, str(error))
    right = swiglu(given, *matrices)
    check(LIGER, [y[: len(right)]], [right])
    return call


@torch.no_grad()
def swiglu(given: ExpertsInput, gate_up: Tensor, down: Tensor, tokens: int = 64) -> Tensor:
    """y of the first tokens in fp32, with Liger's matrices, [E, 2 I, H] and [E, H, I]."""
    x = given.x[:tokens].float()
    y = torch.zeros_like(x)
    for t, row in enumerate(x):
        for e, weight in zip(given.expert[t].tolist(), given.weight[t], strict=True):
            gate, up = (gate_up[e].float() @ row).chunk(2)
            y[t] += weight * (down[e].float() @ (functional.silu(gate) * up))
    return y


def tell(who: str, why: str) -> None:
    """Say on stderr who is left out."""
    print(f"{who} is left out: {next(iter(why.splitlines()), 'no reason given')}", file=sys.stderr)


def timed(face: Callable, inside: list[Tensor], dy: Tensor, way: str) -> Call:
    """A call that gives (y,), or the gradients of everything inside."""
    if way == "forward":
        inside = [one.detach() for one in inside]
        return lambda: (face(*inside),)
    return lambda: torch.autograd.grad(face(*inside), inside, dy)


def check(who: str, found: list[Tensor], right: list[Tensor]) -> None:
    """AssertionError if one of them differs by more than rounding does."""
    for one, other in zip(found, right, strict=True):
        gap = (one - other).norm(dtype=torch.float32)
        error = (gap / other.norm(dtype=torch.float32)).item()
        if not error <= WRONG:
            raise AssertionError(f"{who} is wrong by {error:.3g} of the result")


# --- their rates ----------------------------------------------------------------------------------


def accepted(calls: dict[str, Call]) -> dict[str, Call]:
    """Those that run here, once they are right, which the first is; ours must run."""
    found, right = {}, None
    for who, call in calls.items():
        try:
            made = call()
        except Exception as error:  # compilers have exceptions of many kinds
            if who.startswith(OURS):
                raise
            tell(who, str(error))
            continue
        right = right or made
        check(who, made, right)
        found[who] = call
    return found


def mlps(given: ExpertsInput, way: str) -> dict[str, Call]:
    """The whole MLP of everybody, forward or forward and backward, and the dense product."""
    faces = contest(given).items()
    calls = {who: timed(face, list(given[:3]), given.dy, way) for who, face in faces}
    other = ligers(given, way)
    return accepted(calls) | ({LIGER: other} if other else {}) | {DENSE: dense(given, way)}


def grouped(run: BenchRun, sizes: GroupedSizes = FULL) -> Found:
    """FLOP per second of everybody for every shape, and ours over each, turn by turn."""
    clock, results = run.clock(sizes.warmup, sizes.repeats, cold=True), []
    for shape in run.each(sizes.shapes):
        given = inputs(shape, clock.device)
        for way, times in WAYS.items():
            calls = matmuls(given) if way == ALONE else mlps(given, way)
            done = dict.fromkeys(calls, times * shape.flops)
            if LIGER in done:
                done[LIGER] *= 1.5  # three matrices
            results += compared(f"{way}, {shape}", done, clock.samples(calls))
            del calls
    return "The experts' MLP, relu between two matmuls, bf16", results


def compared(
    name: str, done: dict[str, float], samples: dict[str, list[float]]
) -> list[Measurement]:
    """Everybody's rates, and ours over those of each other, round by round."""
    found = rates(name, "FLOP/s", done, samples)
    return [*found.values(), *(found[OURS].over(found[who]) for who in found if who != OURS)]


GROUPED = BenchJob("experts-grouped", grouped, ("cuda",), seconds=240)
