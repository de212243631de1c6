"""The best layout for each size of model and number of devices: a map."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure
from weft.plan.arguments import sizes
from weft.plan.composing import Cluster, Estimate, Layout, estimate
from weft.plan.hardware import CHIPS, LINKS, Link
from weft.plan.shape import SHAPES, ModelShape

MODELS = ("gpt-1.7b", "gpt-7.5b", "gpt-22b", "gpt-39b", "gpt-76b", "gpt3-175b",
          "mt-nlg-530b", "gpt-1t")  # fmt: skip
DEVICES = (8, 32, 128, 512, 2048, 8192)
MICROBATCHES, VIRTUAL = (1, 2, 4), (8, 6, 5, 4, 3, 2)
KINDS = {
    "data": svg.FORWARD,
    "ZeRO-3": svg.WEIGHT_GRADIENT,
    "+ t": svg.TRAVEL,
    "+ p": svg.INPUT_GRADIENT,
    "+ t, p": svg.WAITING,
}
WIDE, LEFT, TOP, HIGH = 350, 40, 44, 36
Best = tuple[Layout, Estimate]


def kind(layout: Layout) -> str:
    """Which cuts a layout has besides data."""
    if layout.t > 1 or layout.p > 1:
        cuts = (("t", layout.t), ("p", layout.p))
        return "+ " + ", ".join(axis for axis, n in cuts if n > 1)
    return "ZeRO-3" if layout.zero == 3 else "data"


def candidates(shape: ModelShape, devices: int, batch: int, node: int) -> Iterator[Layout]:
    """Layouts of powers of two with t inside a node, and as many virtual stages as layers allow."""
    powers = [1 << i for i in range(devices.bit_length())]
    for t, p in product(powers, powers):
        if t > min(node, shape.heads) or p > shape.layers or t * p > devices:
            continue
        d = devices // (t * p)
        for microbatch, zero in product(MICROBATCHES, (1, 3)):
            if batch % (d * microbatch) or (zero == 3 and p > 1):
                continue
            turns = p > 1 and batch // (d * microbatch) % p == 0
            most = next((v for v in VIRTUAL if turns and shape.layers // p >= v), 1)
            for v in {1, most}:
                yield Layout(p=p, t=t, d=d, v=v, microbatch=microbatch, zero=zero,
                             sequence_parallel=t > 1, recompute="selective")  # fmt: skip


@lru_cache(maxsize=512)
def best(model: str, devices: int, batch: int, between: str, node: int = 8) -> Best | None:
    """The fastest that fits; layers are recomputed whole only if nothing fits otherwise."""
    shape, cluster = SHAPES[model], _cluster(devices, between, node)
    for recompute in "selective", "full":
        found = []
        for layout in candidates(shape, devices, batch, node):
            layout = _with(layout, recompute)
            try:
                found.append((layout, estimate(shape, layout, batch, cluster)))
            except ValueError:  # heads or layers that do not divide
                continue
        able = [one for one in found if one[1].fits]
        if able:
            return min(able, key=lambda one: one[1].seconds)
    return None


def _with(layout: Layout, recompute: str) -> Layout:
    return layout if recompute == layout.recompute else replace(layout, recompute=recompute)


@lru_cache(maxsize=64)
def _cluster(devices: int, between: str, node: int) -> Cluster:
    """H100s in nodes, each with a port of so many Gbit/s."""
    rate = int(between)
    port = Link(f"{rate} Gbit/s", rate / 8 * 1e9, LINKS["ib-ndr"].latency, "a port for each GPU")
    return Cluster(chip=CHIPS["h100"], devices=devices, node=node, inside=LINKS["nvlink4"],
                   between=port)  # fmt: skip


def atlas_svg(batch: int = 2048, between: int = 400) -> str:
    """A cell for each model and number of H100s: the best layout's cuts, and its MFU.

    `batch` is in sequences of 2,048 tokens, `between` in Gbit/s of each GPU's port.
    """
    batch, between = sizes(batch=batch, between=between)
    rows = {name: [best(name, n, batch, str(between)) for n in DEVICES] for name in MODELS}
    figure = Figure.small(
        WIDE, TOP + HIGH * len(MODELS) + 38, "The best layout by model and number of GPUs",
        _told(rows), largest=1.6,
    )  # fmt: skip
    keys = [(name, hue.paint() | OUTLINE) for name, hue in KINDS.items()]
    svg.legend(figure, keys)
    figure.words(0, TOP - 8, "parameters", font_size=11)
    each = (WIDE - LEFT) / len(DEVICES)
    over = {"fill": INK, "pointer_events": "none", "text_anchor": "middle"}
    for i, (name, cells) in enumerate(rows.items()):
        y = TOP + HIGH * i
        figure.words(0, y + 22, _size(name), font_size=11)
        for j, found in enumerate(cells):
            box = {"x": LEFT + each * j, "y": y, "width": each - 2, "height": HIGH - 2}
            middle = box["x"] + box["width"] / 2
            if found is None:
                figure.words(middle, y + 21, "–", text_anchor="middle")
                continue
            layout, said = found
            tip = f"{_size(name)} on {DEVICES[j]:,}: {layout}; {said}"
            figure.mark("rect", **box, **KINDS[kind(layout)].paint(0.2), tip=tip)
            figure.words(middle, y + 15, _short(layout), **over, font_size=11)
            figure.words(middle, y + 29, f"{said.mfu:.0%}", **over, font_size=10)
    floor = TOP + HIGH * len(MODELS)
    for j, n in enumerate(DEVICES):
        figure.words(LEFT + each * (j + 0.5), floor + 14, f"{n:,}", text_anchor="middle",
                     font_size=11)  # fmt: skip
    figure.words(LEFT + each * len(DEVICES) / 2, floor + 32, "GPUs", text_anchor="middle",
                 font_size=11)  # fmt: skip
    return str(figure)


def _short(layout: Layout) -> str:
    axes = [f"{axis}{n}" for axis, n in (("t", layout.t), ("p", layout.p)) if n > 1]
    if layout.zero == 3:
        axes.append("Z3")
    return " ".join(axes) or "data"


def _size(name: str) -> str:
    params = SHAPES[name].params
    return f"{params / 1e12:.1f} T" if params >= 1e12 else f"{params / 1e9:.3g} B"


def _told(rows: dict[str, list[Best | None]]) -> str:
    told = []
    for name, cells in rows.items():
        said = (f"{n:,}: {_short(found[0])}, {found[1].mfu:.0%}"
                for n, found in zip(DEVICES, cells, strict=True) if found)  # fmt: skip
        told.append(f"{_size(name)} on {'; '.join(said)}")
    return f"Best layouts with the share of the peak that they reach. {'. '.join(told)}."
