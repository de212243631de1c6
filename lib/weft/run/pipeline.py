"""One executor for every pipeline schedule: it walks its rank's row of the lowered plan.

There is no 1F1B loop here and no GPipe loop. Whatever order of F, B, W, BW, sends and receives a
plan gives a rank is the order in which that rank works, so the schedule that was drawn, checked
and simulated is the one that runs.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import repeat
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor, nn

from weft.plan.comm import lower
from weft.plan.pipeline import COMPUTE, RECEIVES, SENDS, Action, Plan, validate
from weft.plan.timeline import Span, Timeline
from weft.run.clock import Clock, Wall
from weft.run.defer import Deferred, pay
from weft.run.messages import DTYPES, Messages, check_messages, hoist
from weft.run.world import World

Pair = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


def run(
    plan: Plan,
    stages: Sequence[nn.Module],
    microbatches: Sequence[Pair],
    loss: Loss,
    world: World,
    clock: Clock | None = None,
    sends: str = "buffered",
) -> tuple[Tensor, Timeline]:
    """One step of a plan, all ranks together: (loss, timeline), the same on every rank.

    `stages` are this rank's modules, in the order of their virtual stages; `microbatches` the m
    pairs (input, target), the same on every rank. The loss is the mean over microbatches of
    `loss(output, target)`; the gradients of that mean are added to .grad of this rank's stages.
    """
    return Pipeline(plan, stages, loss, world, clock, sends).step(microbatches)


class Pipeline:
    """A plan, this rank's stages, and everything that is worth keeping from step to step.

    Made and stepped by all ranks of `world` together. Activations and gradients pass between
    ranks as messages; between two stages of one rank they are handed over as they are. An
    activation is let go when its BW is done, or its W where B and W are split, so a rank never
    holds more than the plan's `peak_live`.

    `clock`: a `weft.run.clock` clock, wall time if None. `sends`: with "buffered" sends travel by
    themselves and receives are posted ahead; with "rendezvous" both ends of a message wait until
    it is through. A plan that has not been lowered is then lowered naively, as the simulator does
    it, and where the simulator raises Deadlock the run waits for ever.

    Raises ValueError, on all ranks and before the first message of a step, where the plan is not
    valid or the ranks, stages or microbatches do not match it.
    """

    def __init__(
        self,
        plan: Plan,
        stages: Sequence[nn.Module],
        loss: Loss,
        world: World,
        clock: Clock | None = None,
        sends: str = "buffered",
    ):
        _check(plan, stages, loss, world, sends)
        lowered = plan if plan.lowered else lower(plan, fuse=sends == "buffered")
        check_messages(lowered)
        self.stages = dict(zip(plan.stages_of(world.rank), stages, strict=False))
        self.loss, self.world = loss, world
        self.clock = Wall() if clock is None else clock
        self._blocking = sends == "rendezvous"
        self.plan = lowered if self._blocking else plan
        _agree(lowered, stages, world, sends, self.clock.logical)
        self._row = self._early = lowered.rows[world.rank]
        if not self._blocking and torch.device(world.device).type == "cpu":  # gloo has tags
            self._early = hoist(lowered, self._row, ahead=2 * plan.p)
        self._shown = [
            [a for a in row if self._blocking or a.kind in COMPUTE] for row in lowered.rows
        ]
        self._messages = Messages(lowered, world, self.clock)
        self._deferred = Deferred(stages) if plan.splits else None
        self._split = {a[1:] for a in self._row if a.kind == "B"}
        self._seed = None

    def step(self, microbatches: Sequence[Pair]) -> tuple[Tensor, Timeline]:
        """Forward and backward of all microbatches, as `run` says; stages keep their settings."""
        _check_microbatches(self.plan, microbatches)
        self._microbatches = microbatches
        self._made: dict[tuple, tuple] = {}  # what has been made and not yet passed on
        self._alive: dict[tuple[int, int], Pair] = {}  # (stage, microbatch): input and output
        self._owed: dict[tuple[int, int], list] = {}
        self._losses: list[Tensor] = []
        self._stamps: list = []
        known = self._messages.begin((microbatches[0][0].shape, microbatches[0][0].dtype))
        self.clock.begin(self.plan, self.world)
        with torch.inference_mode(False), torch.enable_grad(), self._deferred or nullcontext():
            self._play(self._early if known else self._row)
        self._messages.finish()
        return self._gather()

    def _play(self, row: Sequence[Action]) -> None:
        """The inner loop: a rank does what its row says."""
        at = 0
        while at < len(row):
            action = row[at]
            if action.kind in COMPUTE:
                self._compute(action)
            elif self._blocking:
                exchange = self.plan.exchange(self.world.rank, at)
                self._pass_on(exchange)
                at += len(exchange) - 1
            elif action.kind in SENDS:
                self._messages.send(action, *self._made.pop(action.message))
            else:
                self._messages.post(action)
            at += 1

    def _compute(self, action: Action) -> None:
        kind, microbatch, stage = action
        source = action.source(self.plan.stages)
        tensor, arrival = self._take(*source, microbatch) if source else (None, None)
        self._stamps.append(self.clock.start(arrival))
        if kind == "F":
            made = self._forward(stage, microbatch, tensor)
        elif kind == "W":
            made = pay(self._owed.pop((stage, microbatch)))
        else:
            made = self._backward(kind, stage, microbatch, tensor)
        self._stamps.append(self.clock.stop(action))
        if made is not None:
            self._made[kind[0], stage, microbatch] = made, self._stamps[-1]

    def _forward(self, stage: int, microbatch: int, x: Tensor | None) -> Tensor | None:
        if x is None:
            x = self._microbatches[microbatch][0].to(self.world.device)
        else:
            x = x.detach().requires_grad_()
        if self._deferred:
            self._deferred.active = (microbatch, stage) in self._split
        y = self.stages[stage](x)
        if not isinstance(y, Tensor):
            raise ValueError(f"output of stage {stage} is a {type(y).__name__}, must be a tensor")
        if stage < self.plan.stages - 1:
            _check_gradient(f"output of stage {stage}", x, self.stages[stage], y)
            self._alive[stage, microbatch] = x, y
            return y.detach()
        loss = self.loss(y, self._microbatches[microbatch][1].to(self.world.device))
        _check_loss(loss)
        _check_gradient("loss", x, self.stages[stage], loss)
        self._losses.append(loss.detach())
        self._alive[stage, microbatch] = x, loss
        return None

    def _backward(self, kind: str, stage: int, microbatch: int, grad) -> Tensor | None:
        """B or BW. The mean over microbatches enters as the gradient of the loss, 1 / m."""
        x, y = self._alive.pop((stage, microbatch))
        if grad is None:
            if self._seed is None:
                self._seed = torch.full_like(y, 1 / self.plan.m)
            grad = self._seed
        if kind == "B":
            self._deferred.active = True  # for what is recomputed in the backward
            self._deferred.owed = self._owed[stage, microbatch] = []
        elif self._deferred:
            self._deferred.active = False
        if y.requires_grad:
            torch.autograd.backward(y, grad)
        if stage == 0:
            return None
        return torch.zeros_like(x) if x.grad is None else x.grad

    # --- messages ----------------------------------------------------------------------------

    def _take(self, way: str, maker: int, microbatch: int) -> tuple[Tensor, float | None]:
        """What an action needs, and when it was made elsewhere, if the clock is logical."""
        message = way, maker, microbatch
        if message in self._made:  # by this rank's other stage, or it has come by rendezvous
            return self._made.pop(message)[0], None
        return self._messages.take(message)

    def _pass_on(self, exchange: Sequence[Action]) -> None:
        """Rendezvous: wait until all messages of an exchange are through."""
        start = self.clock.start()
        tensors = [self._made.pop(a.message)[0] if a.kind in SENDS else None for a in exchange]
        passed = self._messages.exchange(exchange, tensors, start)
        ends = self.clock.meet([time for _, time in passed])
        for action, (tensor, _), end in zip(exchange, passed, ends, strict=True):
            self._stamps += [start, end]
            if action.kind in RECEIVES:
                self._made[action.message] = tensor, None

    def _gather(self) -> tuple[Tensor, Timeline]:
        """The loss and everybody's times to everybody, in one message of a size known before."""
        plan, world = self.plan, self.world
        mine = [0.0, 0.0, *self.clock.seconds(self._stamps)]
        if self._losses:
            total = torch.stack(self._losses).double().sum().item()
            mine[:2] = total / plan.m, DTYPES.index(self._losses[0].dtype)
        mine += [0.0] * (2 + 2 * max(map(len, self._shown)) - len(mine))
        table = _everyones(torch.tensor(mine, dtype=torch.float64), world)
        (loss, dtype) = table[plan.ranks[-1], :2].tolist()
        if not self.clock.logical:
            table -= table[:, 2].min()
        spans = []
        for rank, (row, times) in enumerate(zip(self._shown, table.tolist(), strict=True)):
            spans += map(Span._make, zip(repeat(rank), row, times[2::2], times[3::2]))
        if self._blocking:
            spans.sort(key=lambda span: (span.rank, span.start, span.end))
        loss = torch.tensor(loss, dtype=DTYPES[int(dtype)], device=world.device)
        return loss, Timeline(plan, tuple(spans))


# --- what is checked ------------------------------------------------------------------------------


def _check(plan: Plan, stages: Sequence[nn.Module], loss: Loss, world: World, sends: str) -> None:
    if not isinstance(plan, Plan):
        raise ValueError(f"plan is {plan!r}, must be a weft.plan.pipeline.Plan")
    validate(plan)
    if plan.p != world.size:
        raise ValueError(f"plan has p = {plan.p} ranks, world has {world.size}: must be equal")
    if sends not in ("buffered", "rendezvous"):
        raise ValueError(f"sends is {sends!r}, must be 'buffered' or 'rendezvous'")
    if not isinstance(stages, list | tuple | nn.ModuleList):
        raise ValueError(f"stages is a {type(stages).__name__}, must be a list of modules")
    for stage in stages:
        if not isinstance(stage, nn.Module):
            raise ValueError(f"stages has a {type(stage).__name__} in it, must be modules")
    if not callable(loss):
        raise ValueError(f"loss is a {type(loss).__name__}, must be a function (output, target)")


def _agree(plan: Plan, stages: Sequence[nn.Module], world: World, *others) -> None:
    """What one rank has wrong, all ranks hear of: otherwise they would wait for it for ever."""
    mine = torch.tensor([crc32(repr((plan, *others)).encode()), len(stages)], dtype=torch.float64)
    for rank, (plan_of, stages_of) in enumerate(_everyones(mine, world).tolist()):
        if stages_of != plan.v:
            raise ValueError(
                f"stages on rank {rank} has {stages_of:.0f} modules, must have v = {plan.v}: "
                f"one for each of the virtual stages {plan.stages_of(rank)}"
            )
        if plan_of != mine[0]:
            raise ValueError(
                f"plan, sends or clock differ between rank {world.rank} and rank {rank}, "
                f"must be the same on every rank"
            )


def _check_microbatches(plan: Plan, microbatches: Sequence[Pair]) -> None:
    if not isinstance(microbatches, list | tuple):
        kind = type(microbatches).__name__
        raise ValueError(f"microbatches is a {kind}, must be a list of (input, target) pairs")
    if len(microbatches) != plan.m:
        raise ValueError(f"microbatches has {len(microbatches)} pairs, plan has m = {plan.m}")
    first = None
    for i, pair in enumerate(microbatches):
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise ValueError(f"microbatch {i} is a {type(pair).__name__}, must be (input, target)")
        if not all(isinstance(part, Tensor) for part in pair):
            kinds = ", ".join(type(part).__name__ for part in pair)
            raise ValueError(f"microbatch {i} must be a pair of tensors, got {kinds}")
        form = [(tuple(part.shape), part.dtype) for part in pair]
        first = first or form
        if form != first:
            raise ValueError(
                f"microbatch {i} has (input, target) of {form}, must be of {first} like "
                f"microbatch 0: cut the batch into equal parts"
            )


def _check_loss(loss: Tensor) -> None:
    if not isinstance(loss, Tensor):
        raise ValueError(f"loss is a {type(loss).__name__}, must be a tensor")
    if loss.dim():
        raise ValueError(f"loss has shape {tuple(loss.shape)}, must be a scalar, shape ()")
    if loss.dtype not in DTYPES:
        raise ValueError(f"loss has dtype {loss.dtype}, must be among {DTYPES}")


def _check_gradient(name: str, x: Tensor, stage: nn.Module, made: Tensor) -> None:
    """A detached tensor in the middle would leave all stages before it without a gradient."""
    trains = x.requires_grad or any(weight.requires_grad for weight in stage.parameters())
    if trains and not made.requires_grad:
        raise ValueError(
            f"{name} has no gradient, must depend on its stage's input and weights: "
            f"is it detached, or made under no_grad?"
        )


def _everyones(mine: Tensor, world: World) -> Tensor:
    """Row r of the result is what rank r has.

    It is an all-gather. As an all-to-all of equal parts nobody passes on what others sent, so that
    all have it one hop after the last rank is done, where a ring takes p - 1.
    """
    if world.size == 1:
        return mine[None]
    parts = mine.to(world.device).repeat(world.size, 1)
    rows = torch.empty_like(parts)
    dist.all_to_all_single(rows, parts, group=world.group())
    return rows.cpu()
