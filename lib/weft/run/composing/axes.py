"""The axes of a layout as worlds of their own: whom a rank talks to about what."""

from typing import NamedTuple

from weft.plan.composing import Layout, axes
from weft.run.world import World


class Axes(NamedTuple):
    """The ranks of the pipeline, of the matrices, of a batch and of a sequence; and joined ones.

    `data` are the d c ranks whose tokens differ: over them gradients are averaged and states
    sharded. Of these `e` have a stage's experts between them, `copies` the same experts.
    """

    p: World
    t: World
    d: World
    c: World
    data: World
    e: World | None
    copies: World | None


def lay_out(layout: Layout, world: World) -> Axes:
    """This rank's axes, by the order of weft.plan.composing; every rank of the world calls it."""
    grid = world.grid(**axes(layout))
    p, d, c, t = (grid.axis(name) for name in axes(layout))
    count, data, e, copies = layout.d * layout.c, d, None, None
    if layout.c > 1:
        data = world.grid(p=layout.p, data=count, t=layout.t).axis("data")
    if layout.e > 1:
        joined = world.grid(p=layout.p, copies=count // layout.e, e=layout.e, t=layout.t)
        e, copies = joined.axis("e"), joined.axis("copies")
    return Axes(p, t, d, c, data, e, copies)
