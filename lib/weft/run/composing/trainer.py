"""Training a decoder under a layout: each axis does its part, and none knows another's inside.

The pipeline runs a rank's stages in a schedule's order and says when a stage has its gradients.
Tensor ranks share the matrices inside of a stage. ZeRO shards what a stage keeps over the ranks
that have other tokens, averages its gradients and steps. A trainer puts them together.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from weft.nn.transformer import Config
from weft.plan.arguments import instance
from weft.plan.composing import Layout
from weft.plan.simulate import Timeline
from weft.run.composing import checkpoint
from weft.run.composing.axes import lay_out
from weft.run.composing.checks import check, check_optimizers, checked
from weft.run.composing.stages import Stage, Tokens, held, schedule
from weft.run.composing.whole import gathered_over_stages, names, whole_stage
from weft.run.experts import divided
from weft.run.pipeline import Clock, Pipeline
from weft.run.tensor import cuts
from weft.run.world import World
from weft.run.zero import DataParallel, Zero


class Trainer:
    """A decoder that all ranks of a world train together, as `layout` lays it out.

    Every rank calls it alike. `optimizer` makes a torch optimizer from parameters, as Zero's does.
    The first weights are those that stages(config, 1) gets from the seed. `max_norm`, if any, is
    how long the gradient of the whole decoder may be; `norm` is how long it was in the last step,
    `timeline` what this rank's pipeline did when, by a `clock` of weft.run.pipeline, and `steps`
    how many there have been.

    In bfloat16 the optimizer has fp32 masters. Experts are trained by the loss alone, without one
    that balances them.

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
        clock: Clock | None = None,
    ):
        check(config, layout, optimizer, world, seed, dtype, max_norm)
        self.config, self.layout, self.world, self.max_norm = config, layout, world, max_norm
        self.axes = lay_out(layout, world)
        self._clock, self._dtype = clock, dtype
        self.norm: float | None = None
        self.steps = 0
        self.timeline: Timeline | None = None
        self._tokens = Tokens(config, layout, self.axes)
        stages = held(config, layout, self.axes, self._tokens, dtype, seed)
        self.stages = [one._replace(zeros=self._sharded(one.module, optimizer)) for one in stages]
        self.zeros = [zero for stage in self.stages for zero in stage.zeros]
        check_optimizers([zero.optimizer for zero in self.zeros], world)
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
        self.steps += 1
        total = loss.double()
        dist.all_reduce(total, group=self.axes.data.group())
        return (total / self.axes.data.size).to(loss.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        """The whole decoder's, on every rank, as nn.Sequential(*stages(config, 1)[0]) names it."""
        mine = []
        for stage in self.stages:
            with ExitStack() as stack:
                for zero in stage.zeros:
                    stack.enter_context(zero.gathered())
                mine.append(whole_stage(stage.module))
        plan = schedule(self.layout, 2 * self.layout.p)
        return gathered_over_stages(self.config, plan, mine, self.axes.p)

    def save(self, folder: str | Path) -> None:
        """Write a checkpoint, in place of the one in the folder, with the optimizer's state.

        Each rank writes what it holds into a file of its own, in a folder that all can reach. When
        it returns it is on the disk; killed at any moment, it leaves the one before. Nothing that
        is in the folder besides is touched. Between two steps, and every rank calls it.
        """
        instance((str, Path), folder=folder)
        group = self.world.group()
        first = self.axes.t.rank == 0
        checkpoint.save(Path(folder), group, self.stages, self._shapes(), self.steps, first)

    def load(self, folder: str | Path) -> None:
        """Go on from a checkpoint, saved under whatever layout; every rank calls it.

        ValueError, on all ranks, says which file is missing or damaged, or what does not fit, and
        OSError which cannot be read; nothing has changed then.
        """
        instance((str, Path), folder=folder)
        group = self.world.group()
        self.steps = checkpoint.load(Path(folder), group, self.stages, self._shapes())

    def _shapes(self) -> dict[str, list[int]]:
        """The whole decoder's tensors."""
        (whole,) = names(self.config, 1)
        return {name: list(shape) for name, shape in whole.values()}

    def _sharded(
        self, module: nn.Module, optimizer: Callable[[Iterable], Optimizer]
    ) -> list[DataParallel]:
        """Who keeps a stage and steps: a Zero over all data ranks, and one over copies of experts.

        An expert has worked for the tokens of all its e ranks: its gradients are summed over the
        d c / e copies, and divided by d c, as all others are.
        """
        found = divided(module)
        data, how = self.axes.data, {"hooks": False, "over": self.axes.data.size}
        if self._dtype == torch.bfloat16:
            how["dtype"] = self._dtype  # and masters in fp32
        zeros = [
            Zero(module, optimizer, self.layout.zero, data, own=lambda x: x not in found, **how)
        ]
        if found:
            own, copies = found.__contains__, self.axes.copies
            zeros.append(Zero(module, optimizer, self.layout.zero, copies, own=own, **how))
        return zeros

    # --- a step -----------------------------------------------------------------------------------

    def _pipeline(self, m: int) -> Pipeline:
        """What runs m microbatches."""
        if m not in self._pipelines:
            plan = schedule(self.layout, m)
            whole = self.layout.zero < 3
            stages = [stage.module if whole else Gathered(stage) for stage in self.stages]
            by_number = dict(zip(plan.stages_of(self.axes.p.rank), self.stages, strict=True))

            def ready(stage: int, left: int) -> None:
                if self.layout.zero == 2 or (self.layout.zero < 2 and not left):
                    for zero in by_number[stage].zeros:
                        zero.take()

            how = self._tokens.loss, self.axes.p, self._clock
            self._pipelines[m] = Pipeline(plan, stages, *how, ready=ready)
        return self._pipelines[m]

    def _own(self, tokens: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
        """This rank's microbatches."""
        rows = (x.chunk(self.layout.d)[self.axes.d.rank] for x in (tokens, targets))
        modules = [stage.module for stage in self.stages]
        mine = self._tokens.own(tokens.shape[1], modules, *rows)
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


class Gathered(nn.Module):
    """A stage whose weights its Zeros bring when it is called."""

    def __init__(self, stage: Stage):
        super().__init__()
        self.module, _, self.zeros = stage

    def forward(self, x: Tensor) -> Tensor:
        with ExitStack() as stack:
            for zero in self.zeros:
                stack.enter_context(zero.around_forward())
            return self.module(x)
