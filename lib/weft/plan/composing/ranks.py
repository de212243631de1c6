"""The order of a layout's ranks: t fastest, then c, then d, and p slowest.

It is Megatron's default, "tp-cp-ep-dp-pp": neighbours in rank, which share a node, exchange most.
The e ranks that share experts lie within d c: they are neighbours in it, so data axis and context
axis are one there, with e faster than the d c / e copies of the experts.
"""

from weft.plan import processes
from weft.plan.arguments import chosen, few, instance
from weft.plan.composing.layout import AXES, Layout

JOINED = {"dc": ("d", "c"), "e": ("d", "c"), "dc/e": ("d", "c")}
GROUPS = *AXES, *JOINED


def axes(layout: Layout) -> dict[str, int]:
    """The axes of a layout and their lengths as a mesh, the slowest first.

    >>> axes(Layout(p=4, t=8, d=2))
    {'p': 4, 'd': 2, 'c': 1, 't': 8}
    """
    instance(Layout, layout=layout)
    return {name: getattr(layout, name) for name in AXES}


def coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """Where a rank lies on each axis, and which part of the experts it has.

    >>> coordinates(Layout(p=2, t=4, d=2, e=2), rank=13)
    {'p': 1, 'd': 1, 'c': 0, 't': 1, 'e': 1}
    """
    place = processes.coordinates(rank, axes(layout))
    return place | {"e": (place["d"] * layout.c + place["c"]) % layout.e}


def groups(layout: Layout, axis: str) -> tuple[tuple[int, ...], ...]:
    """The groups of an axis, each in its order; every rank is in one of them.

    "p", "d", "c" and "t" are the axes themselves. In "dc" are those that reduce the gradients of a
    stage, in "e" those that have its experts between them, in "dc/e" those with the same experts.

    >>> groups(Layout(p=2, t=2, d=2), "dc")
    ((0, 2), (1, 3), (4, 6), (5, 7))
    >>> groups(Layout(d=4, e=2), "e"), groups(Layout(d=4, e=2), "dc/e")
    (((0, 1), (2, 3)), ((0, 2), (1, 3)))
    """
    chosen("axis", axis, GROUPS)
    whole_mesh = axes(layout)
    few(layout.devices, "ranks", **whole_mesh)
    if axis in whole_mesh:
        return processes.groups(whole_mesh, axis)
    e = {"dc": 1}.get(axis, layout.e)
    joined = {"p": layout.p, "dc/e": layout.d * layout.c // e, "e": e, "t": layout.t}
    return processes.groups(joined, "dc/e" if axis == "dc" else axis)
