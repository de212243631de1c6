"""A step of a layer of experts over ranks, forward, backward and gradients: ours beside peers.

One peer is data parallelism: a loop over all experts on every rank, which needs no tokens of
others, and an all-reduce of all experts' gradients. The other is expert parallelism as torch alone
writes it: its differentiable all-to-all, after one for the counts, and a loop over a rank's
experts. All are given the same tokens in the same run and take turns; outputs and gradients have
to be equal first. DeepSpeed's MoE layer is none of them: the book does not install it.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as functional

from weft.bench.clock import AllRanks
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.nn.experts import SwitchMLP
from weft.run.experts import ExpertParallel, reduce_gradients
from weft.run.world import World, launch

OURS, LOOP, PLAIN = "weft", "torch, loop over all experts", "torch, all_to_all"


class ExpertsStep(NamedTuple):
    """What is run: tokens of a rank, widths, experts, choices, how many ranks, and how often."""

    T: int = 512
    D: int = 256
    F: int = 512
    E: int = 8
    k: int = 2
    ranks: tuple[int, ...] = (2, 4)
    warmup: int = 2
    repeats: int = 15


FULL = ExpertsStep()


def steps(run: BenchRun, sizes: ExpertsStep = FULL) -> Found:
    """Seconds of a step of everybody, and ours over each peer's, round by round."""
    results = []
    for n in run.each(sizes.ranks, "{} ranks"):
        times, name = launch(_measured, n, sizes, timeout=1800)[0], f"{n} ranks"
        found = {who: Measurement.of(name, who, "s", taken) for who, taken in times.items()}
        results += found.values()
        results += [found[OURS].over(found[who]) for who in (LOOP, PLAIN)]
    form = f"{sizes.T} tokens a rank, {sizes.E} experts of {sizes.D} × {sizes.F}, k = {sizes.k}"
    return f"A step of a layer of experts, gradients averaged: {form}, fp32", results


STEP = BenchJob("experts-step", steps)


# --- on a rank ------------------------------------------------------------------------------------

Layer = Callable[[Tensor], Tensor]


class ExpertsContestant(NamedTuple):
    """A layer, what makes its gradients the mean of all ranks', and its weights."""

    layer: Layer
    reduce: Callable[[], None]
    weights: list[nn.Parameter]

    def step(self, x: Tensor, dy: Tensor) -> tuple[Tensor, list[Tensor]]:
        """What is timed: the output, and gradients of x and of the weights."""
        for weight in (x, *self.weights):
            weight.grad = None
        y = self.layer(x)
        y.backward(dy)
        self.reduce()
        return y.detach(), [weight.grad for weight in (x, *self.weights)]


def _measured(world: World, sizes: ExpertsStep) -> dict[str, list[float]]:
    torch.manual_seed(0)
    mlp = SwitchMLP(sizes.D, sizes.F, sizes.E, sizes.k)
    torch.manual_seed(1 + world.rank)
    x, dy = torch.randn(sizes.T, sizes.D, requires_grad=True), torch.randn(sizes.T, sizes.D)
    some = {
        OURS: _ours(mlp, world),
        LOOP: _loop(mlp, world),
        PLAIN: _plain(mlp, world),
    }
    found = {who: one.step(x, dy) for who, one in some.items()}
    for who in (PLAIN, LOOP):
        y, (dx, *weights) = found[who]
        wanted, (wanted_dx, *wanted_weights) = found[OURS]
        if who == LOOP:  # it has all experts
            part = (w.tensor_split(world.size)[world.rank] for w in weights[1:])
            weights = [weights[0], *part]
        pairs = zip((y, dx, *weights), (wanted, wanted_dx, *wanted_weights), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4, msg=who)
    calls = {who: partial(one.step, x, dy) for who, one in some.items()}
    return AllRanks(world, sizes.warmup, sizes.repeats).samples(calls)


def _ours(mlp: SwitchMLP, world: World) -> ExpertsContestant:
    """The layer, and what belongs to it."""
    layer = ExpertParallel(mlp, world)
    return ExpertsContestant(
        layer, partial(reduce_gradients, layer, world), list(layer.parameters())
    )


def _loop(mlp: SwitchMLP, world: World) -> ExpertsContestant:
    """All experts on every rank, and an all-reduce of all gradients."""
    router, up, down = (nn.Parameter(w.detach().clone()) for w in (mlp.router, mlp.up, mlp.down))

    def layer(x: Tensor) -> Tensor:
        weight, expert = (x @ router).softmax(-1).topk(mlp.k)
        y = torch.zeros_like(x)
        for e, (first, second) in enumerate(zip(up, down, strict=True)):
            token, choice = (expert == e).nonzero(as_tuple=True)
            made = (x[token] @ first).relu() @ second
            y = y.index_add(0, token, weight[token, choice, None] * made)
        return y

    return ExpertsContestant(
        layer, partial(_averaged, [router, up, down], world), [router, up, down]
    )


def _averaged(weights: list[nn.Parameter], world: World) -> None:
    """The mean of gradients over ranks, in one message."""
    flat = torch.cat([weight.grad.flatten() for weight in weights])
    dist.all_reduce(flat, group=world.group())
    parts = (flat / world.size).split([weight.numel() for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.grad = part.view_as(weight)


def _plain(mlp: SwitchMLP, world: World) -> ExpertsContestant:
    """Expert parallelism in torch's own words, for experts that divide."""
    n, group = world.size, world.group()
    router = nn.Parameter(mlp.router.detach().clone())
    up, down = (nn.Parameter(w.detach().chunk(n)[world.rank].clone()) for w in (mlp.up, mlp.down))
    travel = functional.all_to_all_single_autograd

    def layer(x: Tensor) -> Tensor:
        weight, expert = (x @ router).softmax(-1).topk(mlp.k)
        order = expert.flatten().argsort(stable=True)
        token, counts = order // mlp.k, expert.flatten().bincount(minlength=n * len(up))
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=group)
        send, table = counts.view(n, -1).sum(1).tolist(), theirs.view(n, -1)
        receive = table.sum(1).tolist()
        rows = travel(x[token], receive, send, group)
        mine = torch.arange(len(up)).repeat(n).repeat_interleave(table.flatten())
        sort = mine.argsort(stable=True)
        parts = rows[sort].split(table.sum(0).tolist())
        made = torch.cat([(p @ a).relu() @ b for p, a, b in zip(parts, up, down, strict=True)])
        back = travel(made[sort.argsort()], send, receive, group)
        weighed = weight.flatten()[order, None] * back
        return torch.zeros_like(x).index_add(0, token, weighed)

    def reduce() -> None:
        _averaged([router], world)
        for matrix in (up, down):  # the sum over ranks is there
            matrix.grad /= n

    return ExpertsContestant(layer, reduce, [router, up, down])
