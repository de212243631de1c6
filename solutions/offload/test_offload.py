"""The visible tests: 15 of the 20 points. Each exercise first has to be correct, then to be the
best, or to stay within its bytes and buffers, then to overlap. The cases come smallest first."""

import importlib.util

import pytest

from weft.grade import at_most, between, expect
from weft.plan.hardware import CHIPS, LINKS
from weft.plan.offload import HOST_REACHES, HOSTS

MISTAKES, WHEN = "Mistakes", "When to use it, and when not"
ACTIVATIONS = "Activations: offload or recompute"
TOKENS, PROGRAM = "How many tokens make it cheap", "The program"
STREAM = ACT = TILES = "NVMe: a stream through few buffers"


def needs_torch():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: needs torch")


# --- pinned buffers -------------------------------------------------------------------------------

ALONE = [([1], 1, 1), ([3], 1, 1), ([4], 4, 2), ([3, 3], 4, 1), ([9, 3], 6, 1), ([7, 9], 1, 1)]
SEVERAL = [
    ([3, 2], 1, 2),
    ([3, 4], 8, 2),
    ([5, 4, 4], 1, 3),
    ([5, 4, 4], 1, 2),
    ([9, 8, 16], 1, 3),
    ([6, 6, 6, 6, 6], 1, 2),
    ([9, 3, 3, 3], 4, 4),
    ([33, 31, 17, 15, 5, 3], 1, 6),
    ([17, 17, 17, 17, 17, 17], 16, 3),
    ([270, 500, 250, 40, 700, 90], 64, 4),
    ([1 << 20, 270 << 20, 1 << 21, 40 << 20, 90 << 20, 3], 512, 3),
]


@pytest.mark.points(
    0.5,
    read=MISTAKES,
    hint="the alignment is between tensors of a buffer, not behind the last; then the power of two",
)
def test_pinned(answers, probe):
    """Pinned: the bytes that buffers take."""
    for sizes, align, most in ALONE:
        probe.check_pinned(sizes, align, most, answers.pinned(list(sizes), align, most))


@pytest.mark.points(
    1,
    after="test_pinned",
    read=MISTAKES,
    hint="what is best for the first so many tensors is made of what is best for fewer",
)
def test_pinned_several(answers, probe):
    """Pinned: the fewest bytes in few buffers."""
    for sizes, align, most in SEVERAL:
        probe.check_pinned(sizes, align, most, answers.pinned(list(sizes), align, most))


# --- activations ----------------------------------------------------------------------------------

SAME = [([(2, 4, 3, 5)] * n, 5 * fit) for n, fit in ((1, 1), (2, 2), (3, 2), (4, 2), (5, 3))]
TIGHT = [
    ([(2, 4, 3, 5)], 4),
    ([(1, 1, 1, 3), (1, 1, 1, 9)], 11),
    ([(1, 1, 9, 3), (1, 1, 1, 2), (2, 2, 1, 6)], 8),
]
MIXED = [
    ([(1, 3, 1, 2), (3, 1, 4, 2), (3, 1, 2, 6), (4, 3, 1, 5)], 11),  # two leave, or a larger one
    ([(2, 3, 1, 4), (2, 3, 6, 4), (2, 3, 1, 4)], 9),
    ([(3, 3, 9, 6), (3, 3, 2, 6), (3, 3, 2, 6), (3, 3, 1, 2)], 14),
    ([(1, 2, 2, 4), (4, 8, 3, 6), (1, 2, 2, 4), (4, 8, 3, 6), (1, 2, 5, 9)], 17),
    ([(3, 6, 8, 16), (1, 2, 1, 2), (3, 6, 8, 16), (1, 2, 1, 2), (3, 6, 8, 16), (1, 2, 1, 2)], 36),
]


@pytest.mark.points(
    1,
    read=ACTIVATIONS,
    hint="a forward waits for room, and room comes back at the end of a copy, not at its beginning",
)
def test_leave(answers, probe):
    """Leave: the seconds of a step, with layers that are alike or hardly fit."""
    for layers, room in (*SAME, *TIGHT):
        probe.check_leave(layers, room, answers.leave(list(layers), room), best=False)


@pytest.mark.points(
    1,
    after="test_leave",
    read=ACTIVATIONS,
    hint="what leaves last comes back first; of choices equal in seconds the fewest bytes leave",
)
def test_leave_best(answers, probe):
    """Leave: no choice is faster, or as fast with fewer bytes on the link."""
    for layers, room in (*SAME, *TIGHT, *MIXED):
        probe.check_leave(layers, room, answers.leave(list(layers), room))


# --- a design -------------------------------------------------------------------------------------

ROOMY = {"memory": 1e9, "ram": 1e9, "disk": 1e9}
SMALL = {"layers": 3, "params": 100, "width": 4, "kept": 40, "tokens": 8}
RATES = {"rate": 1e5, "link": 400.0, "inside": 3200.0, "touch": 2000.0, "drive": 300.0}
ONE, FOUR = {"gpus": 1} | RATES | ROOMY, {"gpus": 4} | RATES | ROOMY
FITTED = [  # of the GPU, the host's memory and the disk
    *((gpu, ram, disk) for gpu in (1e5, 8e3, 5e3, 3.2e3, 2.4e3, 1.7e3) for ram in (1e5, 3e3, 1.3e3)
      for disk in (1e5, 2e3)),
    (1.7e3, 3e3, 3.8e3),  # on one GPU only with all of the optimizer on the disk, 95 % of it
]  # fmt: skip
QUICK = [  # what is fast or slow
    {},
    {"rate": 1e3},
    {"rate": 1e7},
    {"link": 10.0},
    {"inside": 40.0},
    {"touch": 1e5},
    {"touch": 100.0},
    {"drive": 1e5, "touch": 1e5},
]
CARD = 24e9, 66e12  # bytes and FLOP/s of the GPU of the chapter's own question
LLAMA = {  # hidden, kv width: matrices and two norms; a token keeps 34 D, as it would in GPT
    "7b": (32, 4096, 11008, 4096),
    "13b": (40, 5120, 13824, 5120),
    "70b": (80, 8192, 28672, 1024),
}
REAL = [  # model, chip, host, gpus, memory of the host, drives, inside, batch
    ("13b", "h100", "workstation", 1, 256e9, 4, "nvlink4", 16),
    ("13b", "h100", "workstation", 1, 128e9, 4, "nvlink4", 64),
    ("7b", "h100", "workstation", 1, 256e9, 4, "nvlink4", 16),
    ("13b", "h100", "DGX H100", 8, 2e12, 8, "nvlink4", 64),
    ("70b", "h100", "DGX H100", 8, 2e12, 8, "nvlink4", 64),
    ("70b", "h100", "DGX H100", 8, 5e11, 8, "nvlink4", 64),
    ("13b", "h100", "GH200", 1, 480e9, 2, "nvlink4", 16),
    ("13b", "", "desktop", 1, 192e9, 2, "pcie4", 16),
    ("7b", "", "desktop", 1, 128e9, 1, "pcie4", 16),
    ("13b", "h100", "workstation", 2, 512e9, 2, "pcie5", 16),
    ("70b", "", "desktop", 1, 192e9, 2, "pcie4", 16),
]


def real_case(model, chip, host, gpus, ram, drives, inside, batch):
    """A node at the shares of its peaks that the chapter counts with, and drives of 3.84 TB."""
    layers, width, hidden, kv = LLAMA[model]
    memory, rate = (CHIPS[chip].memory, 0.4 * CHIPS[chip].rate("bf16")) if chip else CARD
    node = {"gpus": gpus, "memory": memory, "rate": rate, "link": HOSTS[host].link}
    node |= {"inside": LINKS[inside].bandwidth, "ram": ram}
    node |= {"touch": HOST_REACHES * HOSTS[host].memory, "disk": drives * 3.84e12}
    node |= {"drive": drives * 8e9}  # four lanes of PCIe 4
    params = 2 * width * (width + kv) + 3 * width * hidden + 2 * width
    sizes = {"layers": layers, "params": params, "width": width, "kept": 34 * width}
    return node, sizes | {"tokens": 4096}, batch


def check_design(answers, probe, node, model, batch, **what):
    told = f"design({node}, {model}, {batch=})"
    got = answers.design(dict(node), dict(model), batch)
    probe.check_design(told, node, model, batch, got, **what)


@pytest.mark.points(
    1,
    read=WHEN,
    hint="per level: weights, two layers' gradients, eighths of 16 bytes, activations of a"
    " microbatch; then whether that is within nine tenths",
)
def test_design_fits(answers, probe):
    """Design: a choice that fits, any of these, and its bytes on each GPU."""
    for node in (ONE, FOUR):
        for gpu, ram, disk in FITTED:
            sizes = {"memory": gpu, "ram": ram, "disk": disk}
            what = {"seconds": False, "best": False}
            check_design(answers, probe, node | sizes, SMALL, 8, **what)


@pytest.mark.points(
    1,
    after="test_design_fits",
    read=TOKENS,
    hint="each pass takes as long as the longest of its flows, once for each microbatch; the update"
    " comes once",
)
def test_design_seconds(answers, probe):
    """Design: the seconds of a step with the choice, whichever it is."""
    for node in (ONE, FOUR):
        for rates in QUICK:
            for gpu, ram, disk in FITTED[::5]:
                sizes = {"memory": gpu, "ram": ram, "disk": disk}
                check_design(answers, probe, node | rates | sizes, SMALL, 8, best=False)


@pytest.mark.points(
    1,
    after="test_design_seconds",
    read=WHEN,
    hint="all choices go with each other: try every one",
)
def test_design_real(answers, probe):
    """Design: no choice is faster, for Llama on a desktop, a workstation, a GH200, a DGX."""
    for node in (ONE, FOUR):
        for rates in QUICK:
            for gpu, ram, disk in FITTED[::5]:
                sizes = {"memory": gpu, "ram": ram, "disk": disk}
                check_design(answers, probe, node | rates | sizes, SMALL, 8)
    for case in REAL:
        check_design(answers, probe, *real_case(*case))


# --- streaming Adam -------------------------------------------------------------------------------

RUNS = {}  # what was measured: the later stages read what the first one ran
CUTS = [[1], [3], [4, 4], [64, 64, 64], [50, 7, 33, 1, 60]]
PREFETCH = (
    "both pieces are in memory while you compute: before that, prefetch all four tensors of the"
    " next one"
)


def ran(answers, cut):
    if tuple(cut) not in RUNS:
        RUNS[tuple(cut)] = answers.probe.adam(cut, steps=3)
    return RUNS[tuple(cut)]


@pytest.mark.points(
    1,
    tier="processes",
    seconds=60,
    read=ACT,
    hint="divide both moments by 1 - beta ** step before you use them; keep them undivided",
)
def test_stream_adam(answers, probe):
    """Adam: three steps give torch.optim.Adam's weights and moments."""
    needs_torch()
    for cut in CUTS:
        probe.check(f"stream_adam, pieces of {cut}, 3 steps", ran(answers, cut))


@pytest.mark.points(
    0.5,
    tier="processes",
    seconds=60,
    after="test_stream_adam",
    read=ACT,
    hint="keep what you have read until it is written; gradients are never written",
)
def test_stream_adam_bytes(answers, probe):
    """Adam: a step reads four tensors of every piece once, and writes three."""
    needs_torch()
    for cut in CUTS:
        probe.once(f"stream_adam, pieces of {cut}", ran(answers, cut))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=60,
    after="test_stream_adam",
    read=ACT,
    hint="let go of a piece before you read the one after the next; compute in place",
)
def test_stream_adam_memory(answers):
    """Adam: two pieces in memory, and two tensors for what lies between."""
    needs_torch()
    for cut in CUTS:
        pairs = list(zip(cut, [*cut[1:], 0], strict=True))
        # What lies between may be less than two tensors; both pieces are there in any case.
        least, most = (
            max(4 * (one + two) + spare * max(one, two) for one, two in pairs) for spare in (0, 2)
        )
        alive = ran(answers, cut)["alive"]
        case = f"stream_adam, pieces of {cut}: bytes alive"
        between(case, alive, 8 * least, 8 * most + 64, PREFETCH if alive < 8 * least else None)


@pytest.mark.points(
    0.5,
    tier="processes",
    seconds=60,
    after="test_stream_adam_memory",
    read=ACT,
    hint="prefetch all four tensors of the next piece as soon as you have this one",
)
def test_stream_adam_ahead(answers, probe):
    """Adam: while a piece is computed on, the next one is on its way."""
    needs_torch()
    for cut in CUTS:
        probe.on_its_way(f"stream_adam, pieces of {cut}", ran(answers, cut))


# --- tiles ----------------------------------------------------------------------------------------

TILED = [(1, 1, 1, 1), (2, 3, 4, 2), (3, 4, 8, 4), (3, 2, 7, 3), (5, 6, 40, 5)]


def tiled(answers, case):
    if case not in RUNS:
        RUNS[case] = answers.probe.tiled(*case)
    return RUNS[case]


def named(case):
    tokens, inputs, outputs, tiles = case
    return f"tiled_backward, x [{tokens}, {inputs}], {outputs} outputs in {tiles} tiles"


@pytest.mark.points(
    0.5,
    tier="processes",
    seconds=60,
    read=TILES,
    hint="each tile adds to the gradient of x; its slice of dy begins where the last one ended",
)
def test_tiled_backward(answers, probe):
    """Tiles: the gradients of x, of every tile's weights and of its biases."""
    needs_torch()
    for case in TILED:
        probe.check(named(case), tiled(answers, case))


@pytest.mark.points(
    0.5, tier="processes", seconds=60, after="test_tiled_backward", read=TILES,
    hint="all that a tile is needed for happens while it is there",
)  # fmt: skip
def test_tiled_backward_once(answers):
    """Tiles: each is read once, and its gradients are given once."""
    needs_torch()
    for case in TILED:
        report = tiled(answers, case)
        expect(f"{named(case)}: reads of each tile", report["reads"], [1] * case[3])
        expect(f"{named(case)}: gradients given of each", report["gives"], [1] * case[3])


@pytest.mark.points(
    0.5,
    tier="processes",
    seconds=60,
    after="test_tiled_backward",
    read=TILES,
    hint="let go of a tile's weights and gradients before you read the next; add to the gradient of"
    " x in place, and count what is made on the way",
)
def test_tiled_backward_memory(answers):
    """Tiles: beside the gradient of x, one tile's weights and gradients."""
    needs_torch()
    for case in TILED:
        tokens, inputs, outputs, tiles = case
        rows = -(-outputs // tiles)
        # The weights may have gone before their gradient is made; the gradient of x is there.
        least = tokens * inputs + rows * inputs
        most = least + rows * inputs + rows
        alive = tiled(answers, case)["alive"]
        between(f"{named(case)}: bytes alive", alive, 8 * least, 8 * most + 64)


# --- a device -------------------------------------------------------------------------------------

DEVICE = {}  # what was measured, too
LAYERS = 12
FEW = [(1, (1, 1, 1, 1, 1)), (2, (1, 2, 3, 2, 1)), (3, (2, 1, 1, 3, 1)), (5, (1, 3, 2, 2, 1))]
BUSY = [  # fill, up, matmul, down, add; links, computing, CPU
    *((1, 4, 2, 4, 1), (1, 5, 1, 1, 1), (1, 1, 1, 5, 1)),
    *((1, 2, 6, 2, 1), (1, 4, 4, 4, 1), (3, 2, 2, 2, 2)),
]
TIMES = 1.15


def driven(answers, layers, times):
    if (layers, times) not in DEVICE:
        DEVICE[layers, times] = answers.probe.two_way([[one] * layers for one in times])
    named = dict(zip(("fill", "up", "matmul", "down", "add"), times, strict=True))
    seconds = ", ".join(f"{name} {one} s" for name, one in named.items())
    return f"two_way, {layers} layer{'s' * (layers > 1)}, {seconds}", DEVICE[layers, times]


@pytest.mark.points(
    1.5,
    tier="chip",
    read=PROGRAM,
    hint="for each buffer: who writes it, who reads it, and which event or which turn of a stream"
    " stands between one use and the next",
)
def test_two_way(answers, probe):
    """Two-way: every gradient, and every use after the one before in any timing."""
    for layers, times in (*FEW, *((LAYERS, times) for times in BUSY)):
        probe.check_device(*driven(answers, layers, times))


@pytest.mark.points(
    0.5,
    tier="chip",
    after="test_two_way",
    read=PROGRAM,
    hint="two of each kind take turns",
)
def test_two_way_buffers(answers, probe):
    """Two-way: four pinned buffers and four on the device."""
    for layers, times in (*FEW, *((LAYERS, times) for times in BUSY)):
        probe.check_buffers(*driven(answers, layers, times))


@pytest.mark.points(
    2,
    tier="chip",
    after="test_two_way_buffers",
    read=PROGRAM,
    hint="give the streams what they can have before the CPU fills, adds or waits",
)
def test_two_way_overlap(answers, probe):
    """Two-way: copies both ways, matmuls and the CPU beside each other."""
    for times in BUSY:
        case, report = driven(answers, LAYERS, times)
        at_most(f"{case}: seconds", report["seconds"], TIMES * probe.floor(times, LAYERS))
