"""The axes of a layout as worlds of their own: whom a rank talks to about what."""

from typing import NamedTuple

from weft.plan.composing import Layout, axes
from weft.run.world import World


class Axes(NamedTuple):
    """The ranks of the pipeline, of the matrices and of a sequence; and of a stage's batch.

    `data` are the d c ranks whose tokens differ: over them gradients are averaged and states
    sharded.
    """

    p: World
    t: World
    d: World
    c: World
    data: World


def lay_out(layout: Layout, world: World) -> Axes:
    """This rank's axes, by the order of weft.plan.composing; every rank of the world calls it."""
    grid = world.grid(**axes(layout))
    p, d, c, t = (grid.axis(name) for name in axes(layout))
    data = d
    if layout.c > 1:
        data = world.grid(p=layout.p, data=layout.d * layout.c, t=layout.t).axis("data")
    return Axes(p, t, d, c, data)
