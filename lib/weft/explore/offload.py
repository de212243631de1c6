"""The sliders of the offload chapter: a stream, the host's update and its cost, places."""

from weft.draw.offload import computing_svg, updates_svg
from weft.draw.offload import places as levels
from weft.draw.offload import stream as draw
from weft.explore.box import chosen, explored
from weft.plan.arguments import sizes
from weft.plan.hardware import CHIPS, LINKS
from weft.plan.offload import (
    HOSTS,
    INFINITY,
    LEVELS,
    MACHINES,
    WAYS,
    OffloadedStep,
    largest,
    placed,
    step_period,
    streamed,
    tokens_for,
)
from weft.plan.units import amount, percent

REACHED = 0.4  # of the peak, without waiting
REACHES = {"v100": REACHED * CHIPS["v100"].rate("fp16")}  # FLOP/s
REACHES |= {name: REACHED * CHIPS[name].rate("bf16") for name in ("a100-80", "h100", "b200")}
SHOWN = ("desktop", "workstation", "DGX H100", "GH200")
DRIVE = LINKS["pcie4"].bandwidth / 4  # 4 lanes of 16


@explored
def streaming(
    pieces: int = 6,
    read: int = 2,
    compute: int = 3,
    write: int = 1,
    buffers: int = 2,
    lanes: int = 1,
) -> tuple[str, str]:
    """A state of so many pieces through so many buffers, beside doing one thing at a time."""
    pieces, compute = sizes(pieces=pieces, compute=compute)
    stream = streamed(pieces, read, compute, write, buffers, lanes)
    alone = streamed(pieces, read, compute, write, buffers=1).makespan
    times = amount(alone / stream.makespan)
    faster = f", {times} times as fast as through one buffer" if buffers > 1 else ""
    over = amount(stream.makespan - stream.bound)
    summary = (
        f"The step takes {amount(stream.makespan)}{faster}. It cannot take less than "
        f"{amount(stream.bound)}, the larger of computing and the disk; {over} more is for filling "
        f"and draining"
    )
    if (buffers, lanes) == (2, 2):
        summary += ", and for waiting: with reads and writes side by side a third buffer would help"
    elif buffers == 1 and pieces > 1:
        summary += " and because nothing overlaps"
    return draw.stream_svg(stream, until=alone), summary + "."


@explored
def updates(microbatches: int = 2, adam: int = 3, link: int = 1) -> tuple[str, str]:
    """Two steps of three layers whose optimizer is on the host, under each way to update.

    A layer takes 1 forward and 2 backward, `adam` on the host, and `link` down and up.
    """
    step = OffloadedStep(3, microbatches, 1, 2, down=link, adam=adam, up=link)
    if max(microbatches, adam, link) > 8:
        raise ValueError("microbatches, adam and link must be at most 8")
    after, layerwise, delayed = (step_period(way, step) for way in WAYS)
    busy = ", ".join(percent(step.compute / period) for period in (after, layerwise, delayed))
    summary = (
        f"The GPU computes {amount(step.compute)} in a step, which takes {amount(after)} with the "
        f"update after the last gradient, {amount(layerwise)} layer by layer and {amount(delayed)} "
        f"delayed: it computes for {busy} of the time."
    )
    return updates_svg(step), summary


@explored
def computing(chip: str = "h100", way: str = "after", tokens: int = 65536) -> tuple[str, str]:
    """How much of a step four machines' GPUs compute, over its tokens, at 40 % of their peak."""
    flops = chosen("chip", chip, REACHES)
    (tokens,), hosts = sizes(tokens=tokens), {name: HOSTS[name] for name in SHOWN}
    least = ", ".join(
        f"{tokens_for(0.8, host, flops, way):,.0f} on {name}" for name, host in hosts.items()
    )
    summary = (
        f"With {amount(flops / 1e12)} TFLOP/s on each GPU, four fifths of a step are "
        f"computing from so many tokens on: {least}, for a dense model of any size."
    )
    return computing_svg(hosts, flops, tokens, way), summary


@explored
def living(
    machine: str = "DGX-2", strategy: str = "infinity-disk", params: int = 100, nodes: int = 1
) -> tuple[str, str]:
    """Where a model of `params` billion parameters lives on some nodes, and what the most is."""
    node = chosen("machine", machine, MACHINES)
    params, nodes = sizes(params=params, nodes=nodes)
    held = placed(params * 1e9, strategy, node, nodes)
    full = [levels.NAMES[k] for k in LEVELS if held[k].total > node.room(k)]
    most = largest(strategy, node, nodes) / 1e9
    with_copy = largest(strategy, node, nodes, INFINITY) / 1e9
    fits = "The states fit" if not full else f"The states do not fit {' and '.join(full)}"
    copied = f", or {amount(with_copy)} as ZeRO-Infinity counts, with gradients in fp32 as well"
    summary = (
        f"{fits}. The largest model whose states fit has {amount(most)} billion parameters"
        f"{copied if with_copy < most else ''}. Activations and buffers are not in it."
    )
    return levels.levels_svg(params * 1e9, strategy, node, nodes), summary
