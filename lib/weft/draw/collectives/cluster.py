"""Two nodes of a cluster: what a byte passes through, and at what rate."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, STUCK, Colour, Figure
from weft.plan.collectives import Box
from weft.plan.units import amount

WIDE, NODE, GAP = 440, 214, 12
SHOWN = 4  # GPUs of a node that are drawn
RAIL = 1  # the rail that is drawn heavily
GPU = Colour("weft-gpu", "#88BBEE")
SWITCH = Colour("weft-switch", "#44BB99")
CARD = Colour("weft-card", "#EE8866")
NET = Colour("weft-net", "#EEDD88")
HIGH = 24
RING = (-16, -8)  # where a ring comes to a GPU from the NVSwitches, and where it leaves
ROWS = {"spine": 34, "leaf": 92, "card": 164, "gpu": 222, "switch": 280}  # tops


def cluster_svg(box: Box) -> str:
    """Spines, leaves, and two nodes with network cards, GPUs and NVSwitches; two ways marked.

    The heavy lines are one rail, the same card of both nodes and their leaf switch, and the way of
    a ring from GPU to GPU through the NVSwitches. The dashed line leads from GPU 0 of one node to
    the last that is drawn of the other by PXN.
    """
    figure = Figure.small(WIDE, 403, f"Two nodes: {box.name}", _describe(box))
    keys = [
        ("GPU", GPU.paint() | OUTLINE),
        ("NVSwitches", SWITCH.paint() | OUTLINE),
        ("NIC", CARD.paint() | OUTLINE),
        ("network switch", NET.paint() | OUTLINE),
    ]
    svg.legend(figure, keys)
    spines = [WIDE * (0.5 + i) / 2 for i in range(2)]
    leaves = [WIDE * (0.5 + i) / SHOWN for i in range(SHOWN)]
    for i, leaf in enumerate(leaves):
        for spine in spines:
            figure.line(spine, ROWS["spine"] + HIGH, leaf, ROWS["leaf"], stroke_opacity=0.5)
        for node in range(2):
            heavy = {"stroke_width": 3} if i == RAIL else {"stroke_opacity": 0.5}
            figure.line(leaf, ROWS["leaf"] + HIGH, _gpu(node, i), ROWS["card"], **heavy)
    for node in range(2):
        _frame(figure, node)
    _pxn(figure, leaves[-1])
    for node in range(2):
        _node(figure, box, node)
    for i, spine in enumerate(spines):
        _box(figure, spine, 90, "spine", f"spine {i}", NET)
    for i, leaf in enumerate(leaves):
        _box(figure, leaf, 76, "leaf", f"leaf {i}", NET)
    _notes(figure, box)
    return str(figure)


def _gpu(node: int, i: int) -> float:
    """The middle of GPU i and its card."""
    return node * (NODE + GAP) + NODE * (0.5 + i) / SHOWN


def _frame(figure: Figure, node: int) -> None:
    """A node's outline, the links inside, and a ring that passes the GPUs on its way."""
    left = node * (NODE + GAP)
    figure.mark("rect", x=left + 0.5, y=ROWS["card"] - 10, width=NODE - 1, height=158, rx=8,
                fill="currentColor", fill_opacity=0.05, stroke="currentColor",
                stroke_opacity=0.4)  # fmt: skip
    for i in range(SHOWN):
        x = _gpu(node, i)
        heavy = {"stroke_width": 3} if i == RAIL else {"stroke_opacity": 0.5}
        figure.line(x, ROWS["card"] + HIGH, x, ROWS["gpu"], **heavy)
        figure.line(x, ROWS["gpu"] + HIGH, x, ROWS["switch"], stroke_width=2, stroke_opacity=0.5)
        top, low = ROWS["gpu"] + HIGH, ROWS["switch"]
        _arrow(figure, x + RING[0], low, top)
        _arrow(figure, x + RING[1], top, low)


def _arrow(figure: Figure, x: float, start: float, end: float) -> None:
    """A heavy line up or down, with a head at its end."""
    back = 7 if end < start else -7
    figure.line(x, start, x, end + back, stroke_width=3)
    figure.mark("path", d=f"M{x} {end}l-4 {back}h8z", fill="currentColor")


def _node(figure: Figure, box: Box, node: int) -> None:
    for i in range(SHOWN):
        _box(figure, _gpu(node, i), 48, "card", f"NIC {i}", CARD)
        _box(figure, _gpu(node, i), 48, "gpu", f"GPU {i}", GPU)
    middle = node * (NODE + GAP) + NODE / 2
    _box(figure, middle, NODE - 12, "switch", f"{box.switches} NVSwitches", SWITCH)


def _pxn(figure: Figure, leaf: float) -> None:
    """From GPU 0 of node 0 by NVLink to the last GPU, and out over its rail."""
    last = SHOWN - 1
    low = ROWS["switch"] + HIGH + 4
    start, turn, end = _gpu(0, 0) + 6, _gpu(0, last) + 6, _gpu(1, last) + 6
    way = (
        f"M{start} {ROWS['gpu'] + HIGH}V{low}H{turn}V{ROWS['card'] - 1}"
        f"L{leaf + 6} {ROWS['leaf'] + HIGH}L{end} {ROWS['card'] - 1}V{ROWS['gpu']}"
    )
    look = STUCK.stroke(2.5) | {"stroke_dasharray": "6 3", "fill": "none"}
    figure.mark("path", d=way, tip="PXN: GPU 0 of one node to the last of the other", **look)


def _notes(figure: Figure, box: Box) -> None:
    inside, outside, host = (
        amount(link.bandwidth / 1e9) for link in (box.inside, box.outside, box.host)
    )
    adds = "and they add" if box.reduces else "and they do not add"
    figure.words(0, 336, f"Shown: {SHOWN} of the {box.gpus} GPUs of a node")
    figure.words(0, 353, f"GPU to NVSwitches: {inside} GB/s each way, {adds}")
    figure.words(0, 370, f"GPU to NIC: PCIe, {host} GB/s each way; NIC to leaf: {outside}")
    figure.line(0, 383, 30, 383, stroke_width=3)
    figure.words(36, 387, f"rail {RAIL}, ring")
    look = STUCK.stroke(2.5) | {"stroke_dasharray": "6 3"}
    figure.mark("path", d="M126 383H156", fill="none", **look)
    figure.words(162, 387, f"PXN: GPU 0 to the other node's GPU {SHOWN - 1}")


def _box(figure: Figure, x: float, wide: float, row: str, name: str, colour: Colour) -> None:
    box = {"x": x - wide / 2, "y": ROWS[row], "width": wide, "height": HIGH}
    figure.mark("rect", **box, **colour.paint(), **OUTLINE)
    figure.words(x, ROWS[row] + 16, name, text_anchor="middle", fill=svg.INK, font_size=13,
                 pointer_events="none")  # fmt: skip


def _describe(box: Box) -> str:
    return (
        f"Two spine switches above {SHOWN} leaf switches; below, two nodes. In each node {SHOWN} "
        f"GPUs, each with a network card above it and NVSwitches below. Card i of both nodes "
        f"hangs on leaf i; the ways over leaf {RAIL} are heavy, and so is "
        f"a ring's way from GPU to GPU through the NVSwitches of each node. A dashed line "
        f"goes from GPU 0 through its NVSwitches to GPU {SHOWN - 1}, its card, leaf {SHOWN - 1} "
        f"and the same card and GPU of the other node."
    )
