"""This rank's stages, cut from one whole decoder: first by layers, then by columns."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from weft.nn.transformer import Config, loss, stages
from weft.plan.composing import Layout
from weft.plan.pipeline import SCHEDULES
from weft.plan.schedule import Plan
from weft.run.composing.axes import Axes
from weft.run.tensor import cross_entropy, parallelize

Loss = Callable[[Tensor, Tensor], Tensor]


def schedule(layout: Layout, m: int) -> Plan:
    """The layout's schedule for a step of m microbatches."""
    sizes = (layout.p, m, layout.v) if layout.schedule == "interleaved" else (layout.p, m)
    return SCHEDULES[layout.schedule](*sizes)


def held(config: Config, layout: Layout, axes: Axes, dtype: torch.dtype, seed: int) -> list:
    """(place, module) of each virtual stage of this rank: its first part's place in the decoder.

    The whole is made on every rank, from one seed, and all but the rank's own is let go.
    """
    plan = schedule(layout, 2 * layout.p)  # who has which stage does not depend on m
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        every = stages(config, plan.stages)
    places = [0, *accumulate(map(len, every))]
    found = []
    for stage in plan.stages_of(axes.p.rank):
        module = every[stage].to(axes.p.device, dtype)
        if layout.t > 1:
            module = parallelize(module, axes.t, layout.sequence_parallel, checks=False)
        found.append((places[stage], module))
    return found


def mean_loss(config: Config, layout: Layout, axes: Axes) -> Loss:
    """The mean loss of a microbatch's tokens, from what the last stage gives."""
    if layout.t == 1:
        return loss
    return partial(cross_entropy, world=axes.t, words=config.vocab)
