"""What to say of a layout that somebody has: which small changes are worth how much."""

from collections.abc import Iterator
from dataclasses import replace

from weft.plan.arguments import chosen, instance
from weft.plan.composing.cluster import Cluster
from weft.plan.composing.estimate import Estimate, estimate
from weft.plan.composing.layout import Layout
from weft.plan.composing.systems import LIMITS, text_for
from weft.plan.shape import RECOMPUTE, ModelShape

MOVES = (("t", "d"), ("t", "p"), ("p", "d"), ("c", "d"), ("c", "p"), ("t", "c"))


def improved(
    shape: ModelShape,
    layout: Layout,
    batch: int,
    cluster: Cluster,
    dtype: str = "bf16",
    system: str = "any",
) -> list[tuple[str, Layout, Estimate]]:
    """One small change after another, each the best from where the last led, until none helps.

    A change is another microbatch, recomputing, stage of ZeRO, number of virtual stages, sequence
    parallelism, or a factor of 2 that goes from one axis to another. The best is the fastest that
    fits, and as long as none fits the one that needs least memory; layouts that the `system`
    cannot say are left out. Each row has the change in words, the layout with all changes so far,
    and what it costs.
    """
    chosen("system", system, LIMITS)
    here, costs = layout, estimate(shape, layout, batch, cluster, dtype)
    path = []
    while True:
        tried = []
        for other in changes(here):
            try:
                text_for(system, shape, other, batch, cluster)
                tried.append((other, estimate(shape, other, batch, cluster, dtype)))
            except ValueError:
                continue  # the system, the model or the batch does not allow it
        best = min(tried, key=lambda each: _rank(each[1]), default=None)
        if best is None or _rank(best[1]) >= _rank(costs):
            return path
        path.append((change(here, best[0]), *best))
        here, costs = best


def _rank(costs: Estimate) -> tuple[bool, float]:
    """What is less is better: what fits by its time, what does not by its memory."""
    return not costs.fits, costs.seconds if costs.fits else costs.memory


def changes(layout: Layout) -> Iterator[Layout]:
    """All layouts of as many devices that one small change leads to.

    >>> [change(Layout(d=3), other) for other in changes(Layout(d=3))][:2]
    ['recompute none -> selective', 'recompute none -> full']
    """
    instance(Layout, layout=layout)
    wanted: list[dict] = [{"recompute": recompute} for recompute in RECOMPUTE]
    wanted += [{"zero": stage} for stage in range(4)]
    wanted += [{"microbatch": layout.microbatch * 2}]
    if layout.microbatch % 2 == 0:
        wanted += [{"microbatch": layout.microbatch // 2}]
    if layout.t > 1:
        wanted += [{"sequence_parallel": not layout.sequence_parallel}]
    if layout.p > 1 and layout.schedule in ("one_f_one_b", "interleaved"):
        plain = {"schedule": "one_f_one_b"}
        wanted += [plain | {"v": v} for v in {1, layout.v * 2, layout.v + 1, 2} if v != layout.v]
    for one, two in MOVES:
        for source, target in ((one, two), (two, one)):
            if getattr(layout, source) % 2 == 0:
                moved = {source: getattr(layout, source) // 2, target: getattr(layout, target) * 2}
                if layout.t == 1 and moved.get("t", 1) > 1:
                    moved["sequence_parallel"] = True
                if moved.get("t") == 1:
                    moved["sequence_parallel"] = False
                if moved.get("p") == 1:
                    moved |= {"v": 1, "schedule": "one_f_one_b"}
                wanted.append(moved)
    for one in wanted:
        try:
            other = replace(layout, **one)
        except ValueError:
            continue
        if other != layout:
            yield other


def change(layout: Layout, other: Layout) -> str:
    """What one layout has otherwise than another, in a few words.

    >>> change(Layout(p=4, d=2), Layout(p=2, d=4, recompute="full"))
    'p 4 -> 2, d 2 -> 4, recompute none -> full'
    """
    instance(Layout, layout=layout, other=other)
    words = []
    for name in Layout.__dataclass_fields__:
        was, now = getattr(layout, name), getattr(other, name)
        if was == now or (name == "schedule" and layout.v != other.v):
            continue
        if name == "sequence_parallel":
            words.append(f"{'with' if now else 'without'} sequence parallelism")
        else:
            words.append(f"{name.replace('zero', 'ZeRO')} {was} -> {now}")
    return ", ".join(words)


def waiting(costs: Estimate) -> float:
    """The share of a step that ranks of a pipeline wait for others: bubble and uneven stages."""
    instance(Estimate, costs=costs)
    return (costs.parts["bubble"] + costs.parts["imbalance"]) / costs.seconds


def unhidden(costs: Estimate) -> float:
    """The share of a step that is messages with nothing beside them."""
    instance(Estimate, costs=costs)
    sent = ("tensor", "pipeline", "context", "experts", "data")
    return sum(costs.parts[name] for name in sent) / costs.seconds
