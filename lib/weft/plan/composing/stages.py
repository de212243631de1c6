"""Layers dealt out to the ranks of a pipeline: what a microbatch takes on each of them."""

from typing import NamedTuple

from weft.plan.composing.cluster import Cluster
from weft.plan.composing.layers import LayerSeconds, Passes, end_seconds, layer_seconds
from weft.plan.composing.layout import FOLDED, Layout
from weft.plan.shape import ModelShape


class Stages(NamedTuple):
    """Seconds of a microbatch on the slowest rank of a pipeline, and on the mean of the others.

    `mean` is the mean of all ranks, and `parts` what it is spent on.
    """

    slowest: Passes
    others: Passes
    mean: float
    parts: dict[str, float]


def stage_seconds(
    shape: ModelShape, layout: Layout, cluster: Cluster, dtype: str = "bf16"
) -> Stages:
    """The slowest rank and the mean of all, where the layers are dealt out as evenly as can be.

    Where they do not come out even, the first and the last stage, with embedding and head, have a
    layer less than the largest. Where layers differ, the largest stage has the slowest of them.
    """
    p = layout.p
    kinds = [(kind.layers, layer_seconds(kind, layout, cluster, dtype)) for kind in shape.kinds]
    embedding, head = end_seconds(shape, layout, cluster, dtype)
    everything = [*kinds, (1, embedding), (1, head)]
    parts = {
        name: sum(count * sum(some[i]) for count, some in everything) / p
        for i, name in enumerate(LayerSeconds._fields)
    }
    whole = Passes(*map(sum, zip(*(_times(*pair) for pair in everything), strict=True)))
    if p == 1:
        return Stages(whole, Passes(), sum(whole), parts)
    layer = max((some.total for _, some in kinds), key=sum)
    ranks = _ranks(shape.layers, layout, layer, embedding.total, head.total)
    slowest = max(ranks, key=sum)
    others = (max(0.0, x - y) / (p - 1) for x, y in zip(whole, slowest, strict=True))
    mean = sum(whole) / p
    if sum(slowest) < mean:  # layers that differ, of which the slowest are few
        slowest = Passes(*(x / p for x in whole))
    return Stages(slowest, Passes(*others), mean, parts)


def _times(count: int, some: LayerSeconds) -> Passes:
    return Passes(*(count * seconds for seconds in some.total))


def _ranks(
    layers: int, layout: Layout, layer: Passes, embedding: Passes, head: Passes
) -> list[Passes]:
    """A microbatch on the first rank, on one between with most layers, and on the last."""
    p, v = layout.p, layout.v
    most = -(-layers // (p * v))
    fewer = 1 if layers % (p * v) else 0
    if layout.schedule in FOLDED:  # the first rank has both ends
        counts = v * most - fewer, v * most
        ends = Passes(*map(sum, zip(embedding, head, strict=True))), Passes()
    else:
        counts = v * most - fewer, v * most - (fewer if p == 2 else 0), v * most - fewer
        ends = embedding, Passes(), head
    return [
        Passes(*(count * x + y for x, y in zip(layer, end, strict=True)))
        for count, end in zip(counts, ends, strict=True)
    ]
