"""The planner: a model and a cluster in, ranked layouts and a config to copy out.

Not a box of sliders but a form, whose fields are FIELDS; `plan` answers it, when the book is built
and in the reader's browser. What the reader types is escaped before it is shown again.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

from weft.draw.composing import steps_svg
from weft.draw.memory import bars_svg
from weft.explore.box import NO_BREAK, chosen
from weft.plan.arguments import positive, whole
from weft.plan.composing import (
    SYSTEMS,
    USUAL,
    Cluster,
    Estimate,
    Layout,
    cluster_of,
    search_for,
    text_for,
    unhidden,
    waiting,
    why,
)
from weft.plan.hardware import CHIPS, Link
from weft.plan.shape import SHAPES, ModelShape, left_out, of_config, unread
from weft.plan.units import amount, count, percent, quantity

ROWS = 6  # layouts that are shown
LONGEST = 8192  # tokens of a sequence, where a config allows more and nobody says how many
GIGABIT = 1e9 / 8  # bytes
NETWORK = 14e-6  # seconds of latency, of InfiniBand as weft.plan.hardware has it
NAMES = {"any": "any system", "megatron": "Megatron-LM", "deepspeed": "DeepSpeed",
         "torchtitan": "torchtitan"}  # fmt: skip
HOURS = 3600


class Field(NamedTuple):
    """One field of the form: `kind` is "menu", "number" or "text"."""

    name: str
    label: str
    kind: str
    default: Any
    choices: tuple[tuple[str, str], ...] = ()  # values and what is shown
    hint: str = ""


FIELDS = (
    Field("model", "Model", "menu", "llama2-70b", tuple((name, name) for name in SHAPES)),
    Field("chip", "Chip", "menu", "h100", tuple((name, name) for name in USUAL)),
    Field("devices", "Devices", "number", 64),
    Field("node", "Devices in a node", "number", 8),
    Field("between", "Gbit/s of each, between nodes", "number", 400),
    Field("batch", "Sequences in a step", "number", 512),
    Field("seq", "Tokens in each", "number", None, hint="the model's"),
    Field("system", "Trained with", "menu", "megatron",
          tuple((name, NAMES[name]) for name in (*SYSTEMS, "any"))),
    Field("config", "A model of your own: paste its config.json", "text", ""),
)  # fmt: skip
Found = list[tuple[Layout, Estimate]]
_kept: dict[tuple, Found] = {}  # answers to the last questions: to look at another row is none


def plan(
    model: str = "llama2-70b",
    config: str = "",
    chip: str = "h100",
    devices: int = 64,
    node: int = 8,
    between: float = 400,
    batch: int = 512,
    seq: int | None = None,
    system: str = "megatron",
    row: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> str:
    """Ranked layouts of a model on a cluster as HTML, with the config of one `row` of them.

    `config` is the text of a config.json, which comes before `model` where it is not empty.
    `progress` is called with how much of the search is done, of how much. ValueError names what
    does not go together.
    """
    shape, notes = _shape(model, config, seq)
    (gigabits,) = positive(between=between)
    link = Link("between nodes", gigabits * GIGABIT, NETWORK)
    cluster = cluster_of(chosen("chip", chip, {name: name for name in USUAL}), devices, node,
                         between=link)  # fmt: skip
    found = _ranked(system, shape, batch, cluster, progress)
    if not found:
        least = f"{count(shape.params)} parameters on {cluster.devices:,} {chip}"
        raise ValueError(f"no layout fits: {least} with {CHIPS[chip].memory / 1e9:.0f} GB each")
    row = min(whole("row", row), len(found))
    parts = [
        f"<p class='weft-summary'>{_summary(found, shape, batch, cluster)}</p>",
        *(f"<p class='explore-note'>{escape(note)}.</p>" for note in notes),
        _scrolled(_table(found, row)),
        _figures(found, cluster),
        _config(system, shape, found[row - 1][0], batch, cluster, row),
    ]
    return "".join(parts)


def _shape(model: str, config: str, seq: int | None) -> tuple[ModelShape, list[str]]:
    """The model, and what of its config is not counted or not understood."""
    if not config.strip():
        shape = chosen("model", model, SHAPES)
        notes = []
    else:
        try:
            read = json.loads(config)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the text is no config.json: {error}") from None
        shape = of_config(read)
        notes = [f"Not counted: {line}" for line in left_out(read)]
        if unknown := ", ".join(unread(read)):
            notes.append(f"Not understood, and may change all of this: {unknown}")
    longest = shape.seq
    learned = longest if shape.positions is None else shape.positions
    short = min(longest, LONGEST) if seq is None else whole("seq", seq)
    return replace(shape, seq=short, positions=learned), notes


def _ranked(
    system: str, shape: ModelShape, batch: int, cluster: Cluster, progress: Callable | None
) -> Found:
    """The search, or what it found when it was last asked the same."""
    asked = (system, shape, batch, cluster.devices, cluster.node, cluster.between, cluster.chip)
    if asked not in _kept:
        if len(_kept) >= 4:
            _kept.pop(next(iter(_kept)))
        _kept[asked] = search_for(system, shape, batch, cluster, keep=ROWS, progress=progress)
    return _kept[asked]


# --- what is shown --------------------------------------------------------------------------------


def short(layout: Layout) -> str:
    """A layout's axes that are longer than 1.

    >>> short(Layout(p=4, t=2, v=3)), short(Layout())
    ('p 4, t 2, v 3', 'one device')
    """
    sizes = ((name, getattr(layout, name)) for name in ("p", "t", "d", "c", "e", "v"))
    return ", ".join(f"{name} {size}" for name, size in sizes if size > 1) or "one device"


def _summary(found: Found, shape: ModelShape, batch: int, cluster: Cluster) -> str:
    """The best layout in a sentence or three."""
    layout, costs = found[0]
    rate = batch * shape.seq / costs.seconds
    hours = cluster.devices * 1e9 / rate / HOURS
    said = (
        f"<strong>{escape(short(layout))}</strong>: {quantity(costs.seconds, 's')} a step, "
        f"{percent(costs.mfu)} MFU, {count(rate)} tokens a second; a billion tokens take "
        f"{amount(hours, 3)} device hours. {count(shape.params)} parameters, sequences of "
        f"{shape.seq:,} tokens."
    )
    if len(found) > 1:
        said += f" The second is {escape(why(costs, found[1][1]))}."
    return said.replace(" %", NO_BREAK + "%")


def _table(found: Found, row: int) -> str:
    """A row for each layout, whose number is a button that shows its config."""
    axes = [
        name
        for name in ("p", "t", "d", "c", "e", "v")
        if any(getattr(layout, name) > 1 for layout, _ in found)
    ]
    odd = any(layout.schedule not in ("one_f_one_b", "interleaved") for layout, _ in found)
    heads = ["", "step", "MFU", "memory", *axes, "b", *(["schedule"] if odd else []), "ZeRO", "SP",
             "recompute", "waiting", "messages"]  # fmt: skip
    lines = []
    for i, (layout, costs) in enumerate(found, 1):
        pressed = "true" if i == row else "false"
        button = (
            f"<button type='button' data-row='{i}' aria-pressed='{pressed}' "
            f"aria-label='config of layout {i}'>{i}</button>"
        )
        cells = [quantity(costs.seconds, "s"), percent(costs.mfu), f"{costs.memory / 1e9:.0f} GB"]
        cells += [*(str(getattr(layout, name)) for name in axes), f"{layout.microbatch}"]
        cells += [escape(layout.schedule)] if odd else []
        cells += [f"{layout.zero}", "yes" if layout.sequence_parallel else "no", layout.recompute]
        cells += [percent(waiting(costs)), percent(unhidden(costs))]
        cells = [button, *(cell.replace(" ", NO_BREAK) for cell in cells)]
        mark = " class='planner-chosen'" if i == row else ""
        lines.append(f"<tr{mark}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "".join(f"<th scope='col'>{name}</th>" for name in heads)
    return (
        "<table class='planner-table'><thead><tr>"
        f"{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def _figures(found: Found, cluster: Cluster) -> str:
    """Steps and memory of the layouts, as bars one under another."""
    steps = steps_svg([(f"{i}. {short(layout)}", costs) for i, (layout, costs) in _numbered(found)])
    held = {
        f"{i}.": [costs.held[name] for name in HELD] for i, (_, costs) in _numbered(found)
    }  # fmt: skip
    bars = bars_svg(held, [cluster.chip], "What the fullest device of each layout holds")
    return (
        "<div class='planner-figures'>"
        f"<div><h4>Where the step goes</h4>{_scrolled(steps)}</div>"
        f"<div><h4>What the fullest device holds</h4>{_scrolled(bars)}</div></div>"
    )


HELD = "weights", "gradients", "optimizer", "activations", "passing"


def _numbered(found: Found):
    return enumerate(found, 1)


def _config(
    system: str, shape: ModelShape, layout: Layout, batch: int, cluster: Cluster, row: int
) -> str:
    """The config of one layout, with a button to copy it."""
    text = text_for(system, shape, layout, batch, cluster)
    if not text:
        return "<p class='explore-note'>For a config, choose the system that trains.</p>"
    return (
        f"<div class='planner-config'><p><strong>{escape(NAMES[system])}</strong>, layout {row}: "
        f"{escape(str(layout))} <button type='button' data-copy>Copy</button></p>"
        f"<pre tabindex='0'>{escape(text)}</pre></div>"
    )


def _scrolled(inside: str) -> str:
    return f"<div class='weft-scroll' style='overflow-x:auto' tabindex='0'>{inside}</div>"
