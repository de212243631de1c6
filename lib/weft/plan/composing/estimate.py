"""A step of training under a layout: seconds by what they are spent on, memory, and utilization."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from weft.plan.arguments import chosen, instance
from weft.plan.collectives import seconds
from weft.plan.composing import held as holds
from weft.plan.composing.cluster import Cluster
from weft.plan.composing.layers import (
    GRADIENT,
    SIZE,
    LayerSeconds,
    end_seconds,
    layer_seconds,
    way,
)
from weft.plan.composing.layout import FOLDED, Layout
from weft.plan.composing.reached import memory_rate
from weft.plan.hardware import SIZES
from weft.plan.memory.partition import divided
from weft.plan.pipeline import idle
from weft.plan.precision import RECIPES
from weft.plan.shape import ModelShape, utilization
from weft.plan.zero import calls

CLIPPED = 32  # bytes: a gradient is read for the norm, scaled, and zeroed
PARTS = (
    "matmul", "attention", "elementwise", "recompute", "imbalance", "bubble", "tensor", "pipeline",
    "context", "experts", "data", "optimizer",
)  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """What a step costs: `parts` add up to `seconds`; `memory` is the fullest device's, in bytes.

    `mfu` is the model's FLOPs, with none recomputed, over what the devices' data sheets promise for
    those seconds; `hfu` has what is recomputed in it, as ModelShape.flops counts it. `flops` are
    those of a second and device as Narayanan et al. 2021 count them: with a second forward where
    recompute is "full".
    """

    seconds: float
    parts: Mapping[str, float]
    memory: float
    held: Mapping[str, float]
    fits: bool
    mfu: float
    hfu: float
    flops: float

    def __str__(self) -> str:
        """One line."""
        said = f"{self.seconds:.4g} s, {self.flops / 1e12:.0f} TFLOP/s, MFU {self.mfu:.1%}"
        room = "" if self.fits else ", does not fit"
        return f"{said}, {self.memory / 1e9:.1f} GB{room}"


class Stages(NamedTuple):
    """Seconds of one microbatch on the slowest rank of a pipeline, and on the mean of the others.

    Each is (forward, inputs' gradients, weights' gradients); `parts` are the mean of all ranks.
    """

    slowest: tuple[float, float, float]
    others: tuple[float, float, float]
    mean: float
    parts: dict[str, float]


def estimate(
    shape: ModelShape, layout: Layout, batch: int, cluster: Cluster, dtype: str = "bf16"
) -> Estimate:
    """A step on `batch` sequences of shape.seq tokens: all of a cluster's devices, in a layout."""
    m = checked(shape, layout, batch, cluster, dtype)
    stages = stage_seconds(shape, layout, cluster, dtype)
    parts = {name: m * stages.parts.get(name, 0.0) for name in PARTS}
    parts["imbalance"] = m * (sum(stages.slowest) - stages.mean)
    if layout.p > 1:
        v = max(2, layout.v) if layout.schedule in FOLDED else layout.v
        f, b, w = stages.others
        w = min(w, f, b) if layout.schedule.startswith("zb") else w
        b = sum(stages.others) - f - w
        parts["bubble"] = idle(layout.schedule, layout.p, f, b, w, v)
        hidden = "pipeline" in cluster.runs.hides
        parts["pipeline"] = hops(layout, m, hidden) * hop_seconds(shape, layout, cluster)
    params, experts = holds.parameters(shape, layout)
    parts["data"] = data_seconds(shape, layout, cluster, m, params, experts, stages)
    parts["optimizer"] = update_seconds(layout, cluster, params, experts)
    total = sum(parts.values())
    kept = holds.memory(shape, layout, m, cluster.runs.attention)
    memory = sum(kept.values())
    peak = cluster.chip.rate(dtype)
    counted = shape.flops(batch, "full" if layout.recompute == "full" else "none")
    return Estimate(
        seconds=total,
        parts=MappingProxyType(parts),
        memory=memory,
        held=MappingProxyType(kept),
        fits=memory <= cluster.chip.memory,
        mfu=utilization(shape.flops(batch), total, peak, layout.devices),
        hfu=utilization(shape.flops(batch, layout.recompute), total, peak, layout.devices),
        flops=counted / total / layout.devices,
    )


def checked(
    shape: ModelShape, layout: Layout, batch: int, cluster: Cluster, dtype: str = "bf16"
) -> int:
    """The microbatches of a step; ValueError for what does not go together."""
    instance(ModelShape, shape=shape)
    instance(Layout, layout=layout)
    instance(Cluster, cluster=cluster)
    chosen("dtype", dtype, SIZES)
    cluster.chip.rate(dtype)
    if layout.devices != cluster.devices:
        made = " * ".join(f"{name}={getattr(layout, name)}" for name in "ptdc")
        raise ValueError(
            f"layout is for {made} = {layout.devices} devices, must be for the cluster's "
            f"{cluster.devices}"
        )
    divided(shape, layout.t, layout.p, layout.v)
    if shape.seq % layout.c:
        raise ValueError(f"c is {layout.c}, must divide seq = {shape.seq}")
    here = shape.seq // layout.c
    if layout.sequence_parallel and here % layout.t:
        raise ValueError(f"t is {layout.t}, must divide seq / c = {here} with sequence_parallel")
    if layout.e > 1:
        if not shape.experts:
            raise ValueError(f"e is {layout.e}, must be 1 for a shape without experts")
        if shape.experts.count % layout.e:
            raise ValueError(f"e is {layout.e}, must divide experts.count = {shape.experts.count}")
    return layout.microbatches(batch)


# --- one microbatch on the ranks of a pipeline ----------------------------------------------------


def stage_seconds(
    shape: ModelShape, layout: Layout, cluster: Cluster, dtype: str = "bf16"
) -> Stages:
    """The slowest rank and the mean of all, where the layers are dealt out as evenly as can be.

    Where they do not come out even, the first and the last stage have one layer less than the
    largest.
    """
    kinds = [(kind.layers, layer_seconds(kind, layout, cluster, dtype)) for kind in shape.kinds]
    embedding, head = end_seconds(shape, layout, cluster, dtype)
    parts: dict[str, float] = {}
    for count, some in (*kinds, (1, embedding), (1, head)):
        add_parts(parts, some, count / layout.p)
    everything = [
        sum(count * getattr(some, name) for count, some in kinds)
        for name in ("forward", "inputs", "weights")
    ]
    ends = [
        [getattr(end, name) for name in ("forward", "inputs", "weights")]
        for end in (embedding, head)
    ]
    whole_model = [x + y + z for x, y, z in zip(everything, *ends, strict=True)]
    mean = sum(whole_model) / layout.p
    if layout.p == 1:
        slowest = tuple(whole_model)
        return Stages(slowest, slowest, mean, parts)
    heaviest = max((some for _, some in kinds), key=lambda some: some.forward)
    slowest = max(_ranks(shape.layers, layout, heaviest, ends), key=sum)
    others = tuple(
        max(0.0, x - y) / (layout.p - 1) for x, y in zip(whole_model, slowest, strict=True)
    )
    return Stages(slowest, others, mean, parts)


def _ranks(
    layers: int, layout: Layout, layer: LayerSeconds, ends: list[list[float]]
) -> list[tuple[float, float, float]]:
    """What a microbatch takes on the first rank, on one between with most layers, and the last."""
    stages = layout.p * layout.v
    most = -(-layers // stages)
    fewer = 1 if layers % stages else 0
    between = layout.v * most - (fewer if layout.p < 3 else 0)
    each = layer.forward, layer.inputs, layer.weights
    first = last = layout.v * most - fewer
    if layout.schedule in FOLDED:  # the first rank has both ends
        ends = [[x + y for x, y in zip(*ends, strict=True)], [0.0, 0.0, 0.0]]
    return [
        tuple(count * x + y for x, y in zip(each, end, strict=True))
        for count, end in ((first, ends[0]), (between, [0.0] * 3), (last, ends[1]))
    ]


def add_parts(parts: dict[str, float], some: LayerSeconds, times: float) -> None:
    """Add so many times what a layer takes, by what it is spent on."""
    for name, value in zip(some._fields, some, strict=True):
        spent = value if name == "recompute" else value[0] + value[1] + value[2]
        parts[name] = parts.get(name, 0.0) + times * spent


# --- between ranks --------------------------------------------------------------------------------


def hops(layout: Layout, m: int, hidden: bool = True) -> float:
    """How many hops from stage to stage are waited for in a step, where each is short.

    1F1B pays 2 (p - 1) / p with every microbatch, as weft.plan.pipeline.microbatch_time has it;
    others on the way in and out alone. A test holds them to the simulation.
    """
    p, v = layout.p, layout.v
    return {
        "gpipe": 2 * (p - 1),
        "one_f_one_b": 2 * (p - 1) * (1 + (m - 1) / p),
        "interleaved": 2 * (p * v - 1) + (0 if hidden else 2 * v * (m - 1)),
        "zb_h1": 4 * (p - 1),
        "zb_h2": p - 1,
        "zb_v": 2 * (2 * p - 1),
        "dualpipe_v": 2 * (2 * p - 1),
    }[layout.schedule]


def hop_seconds(shape: ModelShape, layout: Layout, cluster: Cluster) -> float:
    """A microbatch's activations from one stage to the next: each tensor rank sends its part.

    Without sequence parallelism the t parts are gathered where they come in.
    """
    through = way(cluster, layout.p, layout.t * layout.c * layout.d)
    nbytes = layout.microbatch * shape.seq // layout.c * shape.width * SIZE
    one = through.link
    here = layout.t * layout.c * layout.d < cluster.node
    speed = one.bandwidth if here else way(cluster, 2, cluster.node).link.bandwidth
    taken = one.latency + nbytes / layout.t / speed
    if layout.t > 1 and not layout.sequence_parallel:
        taken += seconds("all_gather", nbytes, layout.t, way(cluster, layout.t, 1).link)
    return taken


def data_seconds(
    shape: ModelShape, layout: Layout, cluster: Cluster, m: int, params: int, experts: int,
    stages: Stages,
) -> float:  # fmt: skip
    """What is not hidden of the gradients' and weights' messages, a layer's at a time.

    Gradients travel while the layers before are in backward, weights while those before are in
    forward; stages 2 and 3 of ZeRO do so with every microbatch.
    """
    over = layout.d * layout.c
    total = 0.0
    for count, n, apart in (
        (params, over, layout.t), (experts, over // layout.e, layout.t * layout.e)
    ):  # fmt: skip
        if n == 1 or not count:
            continue
        share = count / (params + experts)
        through = way(cluster, n, apart)
        k = -(-shape.layers // layout.p)
        forward = stages.slowest[0] / k * share
        backward = (stages.slowest[1] + stages.slowest[2]) / k * share
        taken = {"forward": 0.0, "backward": 0.0}
        often = {"forward": k, "backward": k}
        for call in calls(layout.zero):
            each = count / k * (GRADIENT if call.what == "gradients" else SIZE)
            beside = "backward" if call.when == "backward" else "forward"
            taken[beside] += seconds(call.op, each, n, through.link)
            if layout.zero == 3 or (layout.zero == 2 and call.when == "backward"):
                often[beside] = m * k
        for beside, computing in (("forward", forward), ("backward", backward)):
            hidden = (often[beside] - 1) * min(taken[beside], computing)
            if layout.zero < 2 and "data" not in cluster.runs.hides:
                hidden = 0.0
            total += often[beside] * taken[beside] - hidden * (1 - through.taken)
    return total


def update_seconds(layout: Layout, cluster: Cluster, params: int, experts: int) -> float:
    """The optimizer's step on what a rank keeps of its state, and clipping before it."""
    over = layout.d * layout.c if layout.zero else 1
    of_experts = over // layout.e if layout.zero else 1
    nbytes = (RECIPES[holds.RECIPE].moved + CLIPPED) * (params / over + experts / of_experts)
    return nbytes / memory_rate(cluster.chip)
