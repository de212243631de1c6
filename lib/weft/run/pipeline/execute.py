"""One executor for every pipeline schedule: it walks its rank's row of the lowered plan.

There is no 1F1B loop here and no GPipe loop. Whatever order of F, B, W, BW, sends and receives a
plan gives a rank is the order in which that rank works, so the schedule that was drawn, checked
and simulated is the one that runs.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import repeat

import torch
import torch.fx.experimental.symbolic_shapes  # by backward otherwise, on each rank of each launch
from torch import Tensor, nn

from weft.plan.comm import lower
from weft.plan.schedule import COMPUTE, RECEIVES, SENDS, Action, Plan
from weft.plan.simulate import Span, Timeline
from weft.run.pipeline.checks import (
    Loss,
    Pair,
    agree,
    check,
    check_gradient,
    check_loss,
    check_microbatches,
    check_output,
)
from weft.run.pipeline.clock import Clock, Wall
from weft.run.pipeline.defer import WeightGradientStore, weight_gradients
from weft.run.pipeline.entry import StageEntry
from weft.run.pipeline.messages import DTYPES, Messages, gathered, hoist
from weft.run.world import World

Ready = Callable[[int, int], None]


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

    `clock`: one of `weft.run.pipeline.clock`, wall time if None. `sends`: with "buffered" sends
    travel by themselves and receives are posted ahead; with "rendezvous" both ends of a message
    wait until it is through. A plan that has not been lowered is then
    lowered naively, as the simulator does
    it, and where the simulator raises Deadlock the run waits for ever.

    `ready(stage, left)`, if given, is called when a stage has one microbatch's gradients more in
    .grad, with how many it still lacks: 0 when they are whole, while other stages go on.

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
        ready: Ready | None = None,
    ):
        check(plan, stages, loss, world, sends)
        if clock is not None and not hasattr(clock, "logical"):
            raise ValueError(f"clock is {clock!r}, must be one of weft.run.pipeline's or None")
        if ready is not None and not callable(ready):
            raise ValueError(f"ready is a {type(ready).__name__}, must be a function or None")
        self._ready = ready
        lowered = plan if plan.lowered else lower(plan, fuse=sends == "buffered")
        self.stages = dict(zip(plan.stages_of(world.rank), stages, strict=False))
        self.loss, self.world = loss, world
        self.clock = Wall() if clock is None else clock
        self._blocking = sends == "rendezvous"
        self.plan = lowered if self._blocking else plan
        agree(lowered, stages, world, sends, self.clock.logical)
        self._row = self._early = lowered.rows[world.rank]
        if not self._blocking and torch.device(world.device).type == "cpu":  # gloo has tags
            self._early = hoist(lowered, self._row, ahead=2 * plan.p)
        self._shown = [
            [a for a in row if self._blocking or a.kind in COMPUTE] for row in lowered.rows
        ]
        self._messages = Messages(lowered, world, self.clock)
        self._store = WeightGradientStore(stages) if plan.splits else None
        self._split = {a[1:] for a in self._row if a.kind == "B"}
        self._seed = None
        self._loss_dtypes: dict[tuple, torch.dtype] = {}  # for each form of input

    def step(self, microbatches: Sequence[Pair]) -> tuple[Tensor, Timeline]:
        """Forward and backward of all microbatches, as `run` says; stages keep their settings."""
        check_microbatches(self.plan, microbatches)
        self._microbatches = microbatches
        self._made: dict[tuple, tuple] = {}  # what has been made and not yet passed on
        self._alive: dict[tuple[int, int], tuple] = {}  # (stage, microbatch): entry and output
        self._deferred: dict[tuple[int, int], list] = {}
        self._losses: list[Tensor] = []
        self._stamps: list = []
        self._left = dict.fromkeys(self.stages, self.plan.m)
        form = microbatches[0][0].shape, microbatches[0][0].dtype
        known = self._messages.begin(form)
        self.clock.begin(self.plan, self.world)
        with torch.inference_mode(False), torch.enable_grad(), self._store or nullcontext():
            self._play(self._early if known else self._row)
        self._messages.finish()
        if form not in self._loss_dtypes:
            self._loss_dtypes[form] = self._loss_dtype()
        mean, timeline = self._gather()
        return mean.to(self.world.device, self._loss_dtypes[form]), timeline

    def _play(self, row: Sequence[Action]) -> None:
        """Do all that a row says, in order: compute, send, start to receive."""
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
        """Run one F, B, W or BW between two clock stamps; keep what it made."""
        kind, microbatch, stage = action
        source = action.source(self.plan.stages)
        tensor = arrival = None
        if source:
            tensor, arrival = self._take(*source, microbatch)
        self._stamps.append(self.clock.start(arrival))
        if kind == "F":
            made = self._forward(stage, microbatch, tensor)
        elif kind == "W":
            made = weight_gradients(self._deferred.pop((stage, microbatch)))
        else:
            made = self._backward(kind, stage, microbatch, tensor)
        self._stamps.append(self.clock.stop(action))
        if made is not None:
            self._made[kind[0], stage, microbatch] = made, self._stamps[-1]
        if kind == "W" or kind == "BW":
            self._left[stage] -= 1
            if self._ready:
                self._ready(stage, self._left[stage])

    def _forward(self, stage: int, microbatch: int, x: Tensor | None) -> Tensor | None:
        """F: the stage's output, detached; None from the last stage, which keeps its loss."""
        data, target = self._microbatches[microbatch]
        entry = None if x is None else StageEntry(x)
        x = entry.enter() if entry else data.to(self.world.device)
        trains = x.requires_grad or any(w.requires_grad for w in self.stages[stage].parameters())
        if self._store:
            self._store.active = (microbatch, stage) in self._split
        y = self.stages[stage](x)
        check_output(stage, y)
        last = stage == self.plan.stages - 1
        if last:
            y = self.loss(y, target.to(self.world.device))
            check_loss(y)
            self._losses.append(y.detach())
        check_gradient("loss" if last else f"output of stage {stage}", y, trains)
        self._alive[stage, microbatch] = entry, y
        return None if last else y.detach()

    def _backward(
        self,
        kind: str,
        stage: int,
        microbatch: int,
        grad: Tensor | None,
    ) -> Tensor | None:
        """B or BW: the gradient of the stage's input; of each loss it is 1 / m."""
        entry, y = self._alive.pop((stage, microbatch))
        if grad is None:
            if self._seed is None:
                self._seed = torch.full_like(y, 1 / self.plan.m)
            grad = self._seed
        if kind == "B":
            self._store.active = True  # for what is recomputed in the backward
            self._store.deferred = self._deferred[stage, microbatch] = []
        elif self._store:
            self._store.active = False
        if y.requires_grad:
            torch.autograd.backward(y, grad)
        return entry.gradient if entry else None

    # --- messages ----------------------------------------------------------------------------

    def _take(self, way: str, maker: int, microbatch: int) -> tuple[Tensor, float | None]:
        """The tensor that an action needs; under a logical clock also when another rank made it."""
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

    def _loss_dtype(self) -> torch.dtype:
        """The dtype of the loss, which the rank of the last stage tells the others."""
        mine = DTYPES.index(self._losses[0].dtype) if self._losses else 0
        return DTYPES[gathered(torch.tensor([mine]), self.world)[self.plan.ranks[-1]].item()]

    def _gather(self) -> tuple[Tensor, Timeline]:
        """The mean loss, in float64, and the timeline: a row of numbers from each rank to each.

        A row is a loss, which counts on the rank of the last stage, and the rank's times.
        """
        plan = self.plan
        loss = torch.stack(self._losses).double().mean().item() if self._losses else 0.0
        times = self.clock.seconds(self._stamps)
        times += [0.0] * (2 * max(map(len, self._shown)) - len(times))
        table = gathered(torch.tensor([loss, *times], dtype=torch.float64), self.world)
        losses, times = table[:, 0], table[:, 1:]
        if not self.clock.logical:
            times = times - times[:, 0].min()
        spans = []
        for rank, (row, stamps) in enumerate(zip(self._shown, times.tolist(), strict=True)):
            spans += map(Span._make, zip(repeat(rank), row, stamps[0::2], stamps[1::2]))
        if self._blocking:
            spans.sort(key=lambda span: (span.rank, span.start, span.end))
        return losses[plan.ranks[-1]], Timeline(plan, tuple(spans))
