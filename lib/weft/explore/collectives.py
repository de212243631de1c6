"""The sliders of the collectives chapter: who holds what, ring against tree, nodes and rails."""

from collections.abc import Callable

from weft.draw.collectives import film as draw
from weft.draw.collectives import times as times
from weft.explore.box import chosen, explored
from weft.plan.arguments import sizes
from weft.plan.collectives import (
    BOXES,
    NCCL_ALGORITHMS,
    PROTOCOLS,
    STEPS,
    BoxCluster,
    crossover,
    hierarchical_seconds,
    nccl_choice,
    nccl_seconds,
    rails_seconds,
    seconds,
    sent,
    through_switch,
)
from weft.plan.hardware import LINKS
from weft.plan.units import amount, binary, moment


@explored
def holding(algorithm: str = "ring_all_reduce", n: int = 4, step: int = 1) -> tuple[str, str]:
    """One step of an algorithm: its messages, and who holds what after it."""
    steps = chosen("algorithm", algorithm, STEPS)(n)
    at = min(step, len(steps))
    cut = steps.n if steps.op == "all_to_all" else steps.chunks  # of what one rank has
    moved = sent(steps, [1 / cut] * steps.chunks)
    least, most = amount(min(moved)), amount(max(moved))
    share = least if least == most else f"{least} to {most}"
    times_all = "time" if share == "1" else "times"
    shown = "the start" if not at else f"step {at}"
    summary = (
        f"{shown[0].upper()}{shown[1:]} of {len(steps)}. When all is done, each rank will have "
        f"sent {share} {times_all} the data that it began or ended with."
    )
    return draw.step_svg(steps, at), summary


@explored
def crossing(link: str = "ib-ndr", n: int = 8, size: int = 2**20) -> tuple[str, str]:
    """All-reduce of `size` bytes on n ranks with one such link each, by ring and by trees."""
    wire = chosen("link", link, LINKS)
    n, size = sizes(n=n, size=size)
    switched = link in ("nvlink4", "nvlink5")
    kinds = {"ring": "The ring", "tree": "the tree", "double_tree": "two trees"}
    kinds |= {"in_network": "a switch that adds up"} if switched else {}
    told = []
    for kind, name in kinds.items():
        used = through_switch(wire) if kind == "in_network" else wire
        time = seconds("all_reduce", size, n, used, kind)
        told.append(f"{name} {moment(time, 's', time)}")
    at = crossover(n, wire)
    meets = "The ring never loses to the tree."
    if at:
        meets = f"The ring is at least as fast as the tree from {binary(at)} on."
    summary = (
        f"{binary(size)} on {n:,} ranks: {', '.join(told)}. {meets} "
        f"A message takes {moment(wire.latency, 's', wire.latency)} and its bytes over "
        f"{wire.bandwidth / 1e9:.0f} GB/s."
    )
    return times.times_svg(n, wire, size, switched), summary


@explored
def rails(box: str = "dgx-h100", nodes: int = 4, size: int = 2**30) -> tuple[str, str]:
    """All-reduce of `size` bytes on some nodes: one ring, a ring for each NIC, or three stages."""
    kind = chosen("box", box, BOXES)
    nodes, size = sizes(nodes=nodes, size=size)
    n = BoxCluster(kind, nodes).n
    wires = nodes, kind.gpus, kind.inside, kind.outside

    def flat(S: float) -> float:
        return seconds("all_reduce", S, n, kind.outside if nodes > 1 else kind.inside)

    def rails(S: float) -> float:
        return rails_seconds(S, *wires)

    def stages(S: float) -> float:
        return hierarchical_seconds(S, *wires)

    one, each, three = flat(size), rails(size), stages(size)
    best = "The three stages are" if three < each else "A ring for each NIC is"
    ratio = amount(max(each, three) / min(each, three))
    against = f"{best} {ratio} times as fast as the other." if each != three else ""
    summary = (
        f"{binary(size)} on {n} GPUs: one ring over one NIC takes {moment(one, 's', one)}, a ring "
        f"for each NIC {moment(each, 's', each)}, three stages {moment(three, 's', three)}. "
        f"{against}"
    ).strip()
    title = f"All-reduce on {nodes} {box}: seconds over bytes"
    return times.curves_svg({"flat": flat, "rails": rails, "stages": stages}, size, title), summary


@explored
def choices(nodes: int = 8, size: int = 2**24, switch: str = "yes") -> tuple[str, str]:
    """An all-reduce on nodes of eight H100s in NCCL's model, each by its best protocol."""
    adds = chosen("switch", switch, {"yes": True, "no": False})
    nodes, size = sizes(nodes=nodes, size=size)

    def best(algorithm: str) -> Callable[[float], float]:
        protocols = ["Simple"] if algorithm == "NVLS" else list(PROTOCOLS)
        return lambda S: min(nccl_seconds(S, nodes, 8, algorithm, p) for p in protocols)

    curves = {name: best(name) for name in NCCL_ALGORITHMS if adds or name != "NVLS"}
    taken = nccl_choice(size, nodes, 8, adds)
    each = [f"{times.NAMES[name]} {moment(at(size), 's', at(size))}" for name, at in curves.items()]
    summary = (
        f"{binary(size)} on {8 * nodes} GPUs: the model takes {taken.algorithm} with protocol "
        f"{taken.protocol}, {moment(taken.seconds, 's', taken.seconds)}. "
        f"The best protocol of each: {', '.join(each)}."
    )
    title = f"All-reduce on {nodes} nodes of eight H100s: seconds over bytes"
    return times.curves_svg(curves, size, title), summary
