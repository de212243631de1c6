"""One executor for every pipeline schedule: it walks its rank's row of the lowered plan.

There is no 1F1B loop here and no GPipe loop. Whatever order of F, B, W, BW, sends and receives a
plan gives a rank is the order in which that rank works, so the schedule that was drawn, checked
and simulated is the one that runs.
"""

from collections.abc import Sequence
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
from weft.run.pipeline.defer import Deferred, pay
from weft.run.pipeline.entry import Entry
from weft.run.pipeline.messages import DTYPES, Messages, everyones, hoist
from weft.run.world import World


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
        check(plan, stages, loss, world, sends)
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
        self._deferred = Deferred(stages) if plan.splits else None
        self._split = {a[1:] for a in self._row if a.kind == "B"}
        self._seed = None

    def step(self, microbatches: Sequence[Pair]) -> tuple[Tensor, Timeline]:
        """Forward and backward of all microbatches, as `run` says; stages keep their settings."""
        check_microbatches(self.plan, microbatches)
        self._microbatches = microbatches
        self._made: dict[tuple, tuple] = {}  # what has been made and not yet passed on
        self._alive: dict[tuple[int, int], tuple] = {}  # (stage, microbatch): entry and output
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
        tensor = arrival = None
        if source:
            tensor, arrival = self._take(*source, microbatch)
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
        data, target = self._microbatches[microbatch]
        entry = None if x is None else Entry(x)
        x = entry.enter() if entry else data.to(self.world.device)
        trains = x.requires_grad or any(w.requires_grad for w in self.stages[stage].parameters())
        if self._deferred:
            self._deferred.active = (microbatch, stage) in self._split
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
        """B or BW. The mean over microbatches enters as the seed, 1 / m."""
        entry, y = self._alive.pop((stage, microbatch))
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
        return entry.gradient if entry else None

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
        table = everyones(torch.tensor(mine, dtype=torch.float64), world)
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
