"""This rank's stages, cut from one whole decoder by layers and columns, and its tokens."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from weft.nn.transformer import Attention, Config, causal, loss, stages
from weft.plan.composing import Layout
from weft.plan.pipeline import SCHEDULES
from weft.plan.ring import positions
from weft.plan.schedule import Plan
from weft.run import experts
from weft.run.composing.axes import Axes
from weft.run.ring import attention
from weft.run.tensor import cross_entropy, parallelize
from weft.run.zero import DataParallel

TOKENS = "zigzag"  # who of c ranks has which tokens: each as many pairs of a causal mask


def schedule(layout: Layout, m: int) -> Plan:
    """The layout's schedule for a step of m microbatches."""
    sizes = (layout.p, m, layout.v) if layout.schedule == "interleaved" else (layout.p, m)
    return SCHEDULES[layout.schedule](*sizes)


class Stage(NamedTuple):
    """A virtual stage: its module, and which part of the whole decoder its first part is.

    `zeros` are who keeps its parameters between them, and steps.
    """

    module: nn.Sequential
    place: int
    zeros: Sequence[DataParallel] = ()


def held(
    config: Config, layout: Layout, axes: Axes, tokens: "Tokens", dtype: torch.dtype, seed: int
) -> list[Stage]:
    """This rank's stages.

    The whole is made on every rank, from one seed, and all but the rank's own is let go.
    """
    plan = schedule(layout, 2 * layout.p)  # who has which stage does not depend on m
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        every = stages(config, plan.stages, tokens.attention)
    places = [0, *accumulate(map(len, every))]
    mine = (Stage(every[stage], places[stage]) for stage in plan.stages_of(axes.p.rank))
    return [_cut(stage, config, layout, axes, dtype) for stage in mine]


def _cut(stage: Stage, config: Config, layout: Layout, axes: Axes, dtype: torch.dtype) -> Stage:
    """What a rank keeps of a stage before anything is sharded."""
    module = stage.module.to(axes.p.device, torch.promote_types(dtype, torch.float32))
    if layout.e > 1:
        module = experts.parallelize(module, axes.e)
    if layout.t > 1:
        along = layout.sequence_parallel
        module = parallelize(module, axes.t, along, checks=False, whole_sides=not along)
    if layout.recompute == "full":
        for i, part in enumerate(module, stage.place):
            if 0 < i <= config.layers:  # a block
                part.forward = _recomputed(part.forward)
    return stage._replace(module=module)


def _recomputed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of which autograd keeps the arguments alone."""
    return partial(checkpoint, function, use_reentrant=False, preserve_rng_state=False)


class Tokens:
    """Which tokens of a sequence this rank has, and what takes all: attention, and the mean loss.

    `attention` is of all tokens, wherever they are; "selective" recomputing computes it twice.
    """

    def __init__(self, config: Config, layout: Layout, axes: Axes):
        self.c, self.rank, self._ring = layout.c, axes.c.rank, axes.c
        self.attention: Attention = causal if layout.c == 1 else self._over_ranks
        if layout.recompute == "selective":
            self.attention = _recomputed(self.attention)
        self._mean = loss
        if layout.t > 1:
            self._mean = partial(cross_entropy, world=axes.t, words=config.vocab)
        self._share, self._all = 1.0, 0

    def own(self, T: int, modules: list[nn.Sequential], *tokens: Tensor) -> list[Tensor]:
        """This rank's part of [B, T] each; an embedding is told where in the sequence it stands."""
        if self.c == 1:
            return list(tokens)
        places = positions(T, self.c, TOKENS)[self.rank]
        for part in (part for module in modules for part in module):
            if hasattr(part, "places"):
                part.places = places
        self._share, self._all = self.c * len(places) / T, T
        return [x[:, list(places)] for x in tokens]

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """A microbatch's loss, of which the mean over the c ranks is that of whole sequences."""
        wide = torch.promote_types(scores.dtype, torch.float32)
        mean = self._mean(scores.to(wide), targets)
        return mean if self.c == 1 else mean * self._share

    def _over_ranks(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, self._ring, causal=True, layout=TOKENS, tokens=self._all)
