"""Training systems: which layouts each can say, the best of those, and their configs as text."""

import json
from collections.abc import Callable
from itertools import product
from types import MappingProxyType
from typing import Any

from weft.plan.arguments import chosen, instance, whole
from weft.plan.composing.cluster import Cluster
from weft.plan.composing.deepspeed import to_deepspeed
from weft.plan.composing.estimate import Estimate
from weft.plan.composing.layout import Layout
from weft.plan.composing.megatron import to_megatron
from weft.plan.composing.search import KEEP, search
from weft.plan.composing.torchtitan import to_torchtitan
from weft.plan.shape import ModelShape

PLAIN = {"schedule": "one_f_one_b"}  # interleaved with more than one stage on a rank
_ONE_EACH = PLAIN | {"v": 1, "e": 1, "sequence_parallel": False}
# A system -> searches that between them see the best of what it can say.
LIMITS = MappingProxyType(
    {
        "any": ({},),
        "megatron": (
            PLAIN | {"zero": 1},
            PLAIN | {"zero": 2, "p": 1},
            PLAIN | {"zero": 3, "p": 1},
        ),
        "deepspeed": tuple(
            _ONE_EACH | {"zero": zero, "recompute": recompute} | ({"p": 1} if zero > 1 else {})
            for zero, recompute in product(range(4), ("none", "full"))
        ),
        "torchtitan": (
            *({"schedule": kind, "zero": z} for kind in ("one_f_one_b", "zb_v") for z in (2, 3)),
            {"zero": 0, "p": 1, "t": 1, "c": 1, "e": 1},
        ),
    }
)
# Searches for what is hardly ever better, made only where a stage of ZeRO is asked for.
ASKED = MappingProxyType({"megatron": (PLAIN | {"zero": 0},)})
SYSTEMS = tuple(name for name in LIMITS if name != "any")
TWINS = 3  # times as many layouts are searched for, since some are left out
GAIN = 0.999  # of the seconds with fewer context ranks: what more of them have to go below
ENDS = " \\\n"  # between the lines of a command


def search_for(
    system: str,
    shape: ModelShape,
    batch: int,
    cluster: Cluster,
    dtype: str = "bf16",
    keep: int = KEEP,
    progress: Callable[[int, int], object] | None = None,
    **fixed: Any,
) -> list[tuple[Layout, Estimate]]:
    """The fastest layouts that fit and that a system can say, `keep` at most, fastest first.

    Of those that differ in context ranks alone, and gain nothing by them, the one with fewest.
    `system` is "any", or one of SYSTEMS. `progress`, if any, is called with how much is done, of
    how much. ValueError where no layout divides what has to be divided, or the system refuses what
    is fixed.
    """
    limits = LIMITS[chosen("system", system, LIMITS)]
    limits += tuple(more for more in ASKED.get(system, ()) if "zero" in fixed)
    keep = whole("keep", keep)
    if progress is not None and not callable(progress):
        raise ValueError(f"progress is {progress!r}, must be a function or None")
    found: list[tuple[Layout, Estimate]] = []
    refused: ValueError | None = None
    for turn, limit in enumerate(limits):
        if any(fixed.get(name, value) != value for name, value in limit.items()):
            continue

        def told(done: int, total: int, turn: int = turn) -> None:
            if progress:
                progress(turn * total + done, len(limits) * total)

        try:
            some = search(shape, batch, cluster, dtype, keep * TWINS, told, **limit | fixed)
        except ValueError as error:
            refused = refused or error
            continue
        for layout, costs in some:
            try:
                text_for(system, shape, layout, batch, cluster)
            except ValueError as error:
                refused = refused or error
            else:
                found.append((layout, costs))
    if not found and refused:
        raise refused
    for name, value in fixed.items():
        said = [limit[name] for limit in limits if name in limit]
        if len(said) == len(limits) and value not in said:
            allowed = ", ".join(sorted({str(each) for each in said}))
            raise ValueError(f"{name} is {value!r}, must be one of {allowed} for {system}")
    return _without_twins(sorted(found, key=lambda each: each[1].seconds))[:keep]


def _without_twins(found: list[tuple[Layout, Estimate]]) -> list[tuple[Layout, Estimate]]:
    """Each cut in its fastest form, but those that gain nothing by cutting sequences, too."""
    least: dict[tuple, float] = {}
    kept, seen = [], set()
    for layout, costs in sorted(found, key=lambda each: (each[0].c, each[1].seconds)):
        cut = (layout.p, layout.t, layout.e)
        if (*cut, layout.c) in seen:
            continue
        seen.add((*cut, layout.c))
        if layout.c == 1 or costs.seconds < GAIN * least.get(cut, float("inf")):
            least[cut] = min(costs.seconds, least.get(cut, float("inf")))
            kept.append((layout, costs))
    return sorted(kept, key=lambda each: each[1].seconds)


def text_for(system: str, shape: ModelShape, layout: Layout, batch: int, cluster: Cluster) -> str:
    """The config of a layout as one copies it: a command for Megatron-LM, else a file's content.

    >>> from weft.plan.composing import CLUSTERS
    >>> pod, shape = CLUSTERS["h100-pod"].of(16), ModelShape(24, 1024, 16, 51200, 2048)
    >>> print(text_for("megatron", shape, Layout(p=2, d=8), 32, pod).splitlines()[0])
    torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py \\
    """
    chosen("system", system, LIMITS)
    instance(Cluster, cluster=cluster)
    if system == "any":
        return ""
    if system == "deepspeed":
        return json.dumps(to_deepspeed(layout, batch), indent=2)
    if system == "torchtitan":
        return to_torchtitan(shape, layout, batch).rstrip()
    here = min(cluster.node, cluster.devices)
    lines = [f"torchrun --nproc-per-node {here} --nnodes {cluster.nodes} pretrain_gpt.py"]
    for word in to_megatron(shape, layout, batch):
        if word.startswith("--"):
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}" if word.replace("_", "").isalnum() else f" '{word}'"
    return ENDS.join(lines)
