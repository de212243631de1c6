"""Training a decoder under a layout: each axis does its part, and none knows another's inside.

The pipeline runs a rank's stages in a schedule's order and says when a stage has its gradients.
Tensor ranks share the matrices inside of a stage. ZeRO shards what a stage keeps over the ranks
that have other tokens, averages its gradients and steps. A trainer puts them together.
"""

import math
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from weft.nn.transformer import Config
from weft.plan.composing import Layout
from weft.plan.simulate import Timeline
from weft.run.composing.axes import lay_out
from weft.run.composing.checks import check, checked
from weft.run.composing.stages import held, mean_loss, schedule
from weft.run.composing.whole import gathered_over_stages
from weft.run.pipeline import Pipeline
from weft.run.tensor import cuts, whole
from weft.run.world import World
from weft.run.zero import Zero


class Trainer:
    """A decoder that all ranks of a world train together, as `layout` lays it out.

    Every rank calls it alike. `optimizer` makes a torch optimizer from parameters, as Zero's does.
    The first weights are those that stages(config, 1) gets from the seed. `max_norm`, if any, is
    how long the gradient of the whole decoder may be; `norm` is how long it was in the last step,
    `timeline` what this rank's pipeline did when.

    A rank keeps of its stages what ZeRO's stage leaves it. 0 and 1 average gradients once a step,
    as soon as a stage has those of all microbatches; 2 after each, for it keeps no whole gradient.
    3 gathers weights for each microbatch's forward and backward, for a rank that kept them from
    one to the next would have them all, as in stage 2: so its bytes grow with microbatches. Its
    weights are gone by the time of a schedule's W, whose work is then done in B.

    ValueError, on all ranks, names what does not fit or differs between them.
    """

    def __init__(
        self,
        config: Config,
        layout: Layout,
        optimizer: Callable[[Iterable], Optimizer],
        world: World,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        max_norm: float | None = None,
    ):
        check(config, layout, optimizer, world, seed, dtype, max_norm)
        self.config, self.layout, self.world, self.max_norm = config, layout, world, max_norm
        self.axes = lay_out(layout, world)
        self.norm: float | None = None
        self.timeline: Timeline | None = None
        stages = held(config, layout, self.axes, dtype, seed)
        self.places = [place for place, _ in stages]
        how = layout.zero, self.axes.data
        self.zeros = [Zero(module, optimizer, *how, hooks=False) for _, module in stages]
        self._pipelines: dict[int, Pipeline] = {}

    def step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """One step on a whole batch, the same on every rank: (tokens, targets), [B, T] each.

        B is d * microbatch * m. The loss is the mean over all of it, on every rank.
        """
        tokens, targets, m = checked(batch, self.config, self.layout, self.world)
        pipeline = self._pipeline(m)
        loss, self.timeline = pipeline.step(self._own(tokens, targets))
        if self.max_norm is not None:
            self.norm = self._clip()
        for zero in self.zeros:
            zero.step()
            zero.zero_grad()
        total = loss.double()
        dist.all_reduce(total, group=self.axes.data.group())
        return (total / self.axes.data.size).to(loss.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        """The whole decoder's, on every rank, as nn.Sequential(*stages(config, 1)[0]) names it."""
        mine = []
        for zero in self.zeros:
            with zero.gathered() as module:
                mine.append(whole(module))
        plan = schedule(self.layout, 2 * self.layout.p)
        return gathered_over_stages(self.config, plan, mine, self.axes.p)

    # --- a step -----------------------------------------------------------------------------------

    def _pipeline(self, m: int) -> Pipeline:
        """What runs m microbatches."""
        if m not in self._pipelines:
            plan = schedule(self.layout, m)
            stages = [Sharded(zero) if zero.stage == 3 else zero.module for zero in self.zeros]
            mean = mean_loss(self.config, self.layout, self.axes)
            by_stage = dict(zip(plan.stages_of(self.axes.p.rank), self.zeros, strict=True))

            def ready(stage: int, left: int) -> None:
                zero = by_stage[stage]
                if zero.stage == 2 or (zero.stage < 2 and not left):
                    zero.take()

            self._pipelines[m] = Pipeline(plan, stages, mean, self.axes.p, ready=ready)
        return self._pipelines[m]

    def _own(self, tokens: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
        """This rank's microbatches."""
        mine = (x.chunk(self.layout.d)[self.axes.d.rank] for x in (tokens, targets))
        parts = (x.split(self.layout.microbatch) for x in mine)
        return list(zip(*parts, strict=True))

    def _clip(self) -> float:
        """Shorten the whole decoder's gradient to `max_norm` if it is longer; how long it was.

        What all tensor ranks have, the first of them counts.
        """
        first = self.axes.t.rank == 0
        total = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for zero in self.zeros:
            cut = cuts(zero.module)
            total += zero.squares(lambda name, cut=cut: first or name in cut)
        dist.all_reduce(total, group=self.world.group())
        norm = math.sqrt(total)
        for zero in self.zeros:
            zero.shorten(norm, self.max_norm)
        return norm


class Sharded(nn.Module):
    """A stage whose weights a Zero brings when it is called."""

    def __init__(self, zero):
        super().__init__()
        self.module, self.zero = zero.module, zero

    def forward(self, x: Tensor) -> Tensor:
        return self.zero(x)
