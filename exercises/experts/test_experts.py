"""The visible tests: 15 of the 20 points. The cases come smallest first."""

import importlib.util
from itertools import product

import pytest

from weft.plan.collectives import BOXES
from weft.plan.hardware import CHIPS

CAPACITY, EVEN = "Capacity, and who is dropped", "Keeping the load even: a loss or a bias"
WALL = "What expert parallelism sends, and when that is the wall"
WORLD, MEMORY = (
    "One world, two shapes: who sums which gradient",
    "Memory, and the price at inference",
)
LAUNCH, WHICH = "One launch for all experts", "When to use which"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- drops ----------------------------------------------------------------------------------------

ALONE = [  # choices, experts, percent
    ([[[0]]], 1, 100),
    ([[[0]]], 4, 100),
    ([[[0], [0], [1]]], 2, 100),
    ([[[0, 1], [1, 0]]], 2, 50),
    ([[[0, 1], [1, 0], [1, 0]]], 3, 100),
    ([[[0, 1], [0, 1], [1, 0]]], 4, 100),
    ([[[1, 2, 0], [1, 0, 2], [1, 2, 0], [2, 1, 0]]], 3, 75),
    ([[[i * i % 7 % 4] for i in range(23)]], 4, 125),
    ([[[0]] * 12 + [[1]] * 88], 10, 110),
    ([[[0]] * 25], 3, 120),  # 10 places, which floating point makes 11, and 5
    ([[[0]] * 50], 11, 110),
]
RANKS = [
    ([[[0], [0]], [[1], [1]]], 2, 100),
    ([[[0], [0], [0], [0]], [[0], [1], [1], [1]]], 2, 100),
    ([[], [[0], [0]]], 2, 100),
    ([[[0]], [[0], [1], [1]], [[1], [1]]], 2, 1),  # ranks before tokens
    ([[[0, 1], [0, 1], [1, 0]], [[2, 3], [2, 0], [1, 3]]], 4, 100),
    ([[[0, 1], [0, 1], [1, 0]], [[2, 3], [2, 0], [1, 3]]], 4, 50),
    ([[[1, 0], [1, 0], [1, 0]], [[0, 2]], [[0, 1], [0, 1], [0, 1], [2, 1]]], 3, 100),
    ([[[i * (i + r) % 5, 5 + i % 3] for i in range(3 * r)] for r in range(5)], 8, 110),
]


@pytest.mark.points(
    1,
    read=CAPACITY,
    hint="round up in whole numbers; all first choices come before any second one",
)
def test_drops(answers, probe):
    """Drops: on one rank, second choices after all first ones."""
    for case in ALONE:
        probe.check_drops(*case, answers.drops([list(map(list, x)) for x in case[0]], *case[1:]))


@pytest.mark.points(
    1,
    after="test_drops",
    read=CAPACITY,
    hint="each rank's own choices take its own places; what is left over is lent, first choices"
    " of all ranks before second ones, and those of one rank before the next one's",
)
def test_drops_ranks(answers, probe):
    """Drops: over ranks, with places that are lent."""
    for case in RANKS:
        probe.check_drops(*case, answers.drops([list(map(list, x)) for x in case[0]], *case[1:]))


# --- a grid ---------------------------------------------------------------------------------------

SMALL = {"layers": 4, "width": 4, "hidden": 8, "experts": 8, "k": 2, "other": 500}
SMALL |= {"tokens": 2, "kept": 16}
MANY, ROOMY = 2**12, 10**12  # tokens of a step, bytes
V3 = {"layers": 58, "width": 7168, "hidden": 2048, "experts": 256, "k": 8, "other": 293_000_000}
MIXTRAL = {"layers": 32, "width": 4096, "hidden": 14336, "experts": 8, "k": 2, "other": 42_000_000}
QWEN = {"layers": 48, "width": 2048, "hidden": 768, "experts": 128, "k": 8, "other": 20_000_000}
REAL = [  # model, tokens in a microbatch, kept, chip, nodes, tokens of a step
    (V3, 4096, 60_000, "h200", 16, 2**22),
    (V3, 4096, 60_000, "h200", 8, 2**22),
    (V3, 4096, 60_000, "h200", 32, 2**22),
    (V3, 4096, 60_000, "h200", 256, 2**24),
    (V3, 4096, 60_000, "h100", 256, 2**26),
    (MIXTRAL, 8192, 40_000, "h100", 4, 2**22),
    (MIXTRAL, 8192, 40_000, "h100", 32, 2**22),
    (QWEN, 8192, 20_000, "h100", 1, 2**20),
    (QWEN, 8192, 20_000, "h200", 4, 2**21),
]

PCIE = {"inside": 64e9}  # bytes/s, hardly more than outside


def made(memory=ROOMY, gpus=4, rate=1e6, inside=1e4, outside=1e3):
    return {"gpus": gpus, "memory": memory, "rate": rate, "inside": inside, "outside": outside}


def real(name):
    """A node of eight whose GPUs reach half of their peak."""
    chip, box = CHIPS[name], BOXES["dgx-h100"]
    links = {"inside": box.inside.bandwidth, "outside": box.outside.bandwidth}
    return {"gpus": 8, "memory": chip.memory, "rate": chip.rate("bf16") / 2} | links


def check_grid(answers, probe, node, model, nodes, batch, fastest=True):
    told = f"grid({node}, {model}, {nodes=}, {batch=})"
    got = answers.grid(dict(node), dict(model), nodes, batch)
    probe.check_grid(told, node, model, nodes, batch, got, fastest)


def edges(probe, node, model, nodes, batch):
    """Memories in which each grid just fits, and just does not."""
    for *_, kept in probe.all_grids(node, model, nodes, batch):
        for factor in (1 - 1e-6, 1 + 1e-6):
            yield node | {"memory": float(kept) / 0.9 * factor}, model, nodes, batch


@pytest.mark.points(
    1,
    read=MEMORY,
    hint="a GPU has E / e experts of each layer, whose optimizer's state it shares with d / e - 1"
    " others; min(m, p) microbatches wait for their backward",
)
def test_grid_memory(answers, probe):
    """Grid: whether one fits, any of these, and how many bytes it keeps."""
    fast = made(inside=1e30, outside=1e30, gpus=1)
    sizes = (SMALL, 1, MANY), (SMALL, 2, MANY), (SMALL | {"layers": 3}, 4, MANY), (SMALL, 8, MANY)
    few = (SMALL, 4, 4), (SMALL, 4, 2)  # m < p
    for model, nodes, batch in (*sizes, *few):
        for case in edges(probe, fast, model, nodes, batch):
            check_grid(answers, probe, *case, fastest=False)


@pytest.mark.points(
    1,
    after="test_grid_memory",
    read=WALL,
    hint="count the groups that a token needs, without its own; inside these are GPUs, outside"
    " nodes; m + p - 1 microbatches long",
)
def test_grid_time(answers, probe):
    """Grid: what is fastest, inside nodes and across."""
    for gpus, nodes, k in ((1, 1, 1), (2, 1, 1), (2, 2, 1), (4, 2, 3), (2, 8, 8), (8, 4, 2)):
        for rate, batch in product((1e5, 1e8), (MANY, 2 * gpus * nodes, 24 * gpus * nodes)):
            node, model = made(gpus=gpus, rate=rate), SMALL | {"k": k}
            for case in edges(probe, node, model, nodes, batch):
                check_grid(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_grid_time",
    read=WHICH,
    hint="ask of each model and cluster what decides: room, sending or the bubble",
)
def test_grid_real(answers, probe):
    """Grid: DeepSeek-V3, Mixtral and Qwen3 on H100s and H200s, and over PCIe."""
    for model, tokens, kept, chip, nodes, batch in REAL:
        model = model | {"tokens": tokens, "kept": kept}
        check_grid(answers, probe, real(chip), model, nodes, batch)
    model = V3 | {"tokens": 4096, "kept": 20_000}
    check_grid(answers, probe, real("h200") | PCIE, model, nodes=64, batch=2**22)


# --- a loss for documents -------------------------------------------------------------------------

OPERATIONS = 60
MANY_ONES = 256, 8, 2, list(range(0, 256, 4))
ONE = [(1, 1, 1), (1, 3, 2), (2, 2, 1), (5, 3, 1), (9, 4, 2), (12, 6, 3)]  # T, E, k
PACKED = [(2, 2, 1, (0, 1)), (5, 3, 2, (0, 2)), (9, 4, 2, (0, 1, 7)), (40, 8, 3, (0, 9, 10, 33))]


def ran_balance(answers, T, E, k, begins=(0,), full=0.0, large=2.0, middle=0.0):
    begins = list(begins)
    documents = f"{begins=}" if len(begins) < 9 else f"{len(begins)} documents"
    case = f"balance: {T=}, {E=}, {k=}, {documents}"
    case += f", {full:.0%} of choices without room" if full else ""
    case += f", scores of about {large:g}" if large > 2 else ""
    case += f", all scores near {middle:g}" if middle else ""
    return case, answers.probe.balance(T, E, k, begins, full, large, middle=middle)


@pytest.mark.points(
    1,
    read=EVEN,
    hint="the slope of s / sum s in a score has s (1 - s) where a softmax has p; sigmoids of 1e-13"
    " are divided by their sum like others",
)
def test_balance(answers, probe):
    """Balance: of one document, with large scores, small ones, and all of a token's near -30."""
    needs("torch")
    for large in (2.0, 20.0):
        for sizes in ONE:
            probe.check(*ran_balance(answers, *sizes, large=large))
    for sizes in ONE:
        probe.check(*ran_balance(answers, *sizes, middle=-30.0))


@pytest.mark.points(
    1,
    after="test_balance",
    read=EVEN,
    hint="each document by itself, long ones as much as short ones; load is what was asked for",
)
def test_balance_packed(answers, probe):
    """Balance: of packed documents, where some choices find no room."""
    needs("torch")
    for sizes in PACKED:
        probe.check(*ran_balance(answers, *sizes))
        probe.check(*ran_balance(answers, *sizes, full=0.5))


@pytest.mark.points(
    1,
    after="test_balance_packed",
    read=EVEN,
    hint="give each token the number of its document, and add up by it",
)
def test_balance_operations(answers, probe):
    """Balance: many documents in few operations."""
    needs("torch")
    case, report = ran_balance(answers, *MANY_ONES, full=0.2)
    probe.check(case, report)
    probe.at_most(f"{case}: operations", report["operations"], OPERATIONS)


# --- ranks ----------------------------------------------------------------------------------------

RUNS = {}  # the later stages read what the first one ran
EVEN_ONES = [  # tokens of each rank, ranks in a row, E, k, most, D, F
    ((2, 2), 2, 2, 1, 9, 2, 3),
    ((5, 4), 2, 4, 2, 9, 3, 2),
]
UNEVEN = [
    ((1, 0), 2, 2, 1, 9, 2, 2),
    ((4, 3), 1, 3, 2, 9, 2, 2),
    ((6, 0, 5), 3, 6, 2, 2, 3, 2),
    ((7, 6, 3, 5), 2, 4, 3, 3, 2, 3),
]
GRADED = ((6, 6, 6, 6), 4, 8, 2, 4, 8, 32)
TIMES = 6  # the bytes of a rank's own experts that may be alive


def split(answers, dice):
    """What every rank measured, case by case."""
    needs("torch")
    cases = [*EVEN_ONES, *UNEVEN, GRADED]
    if "split" not in RUNS:
        RUNS["split"] = answers.probe.merged(cases, dice.randrange(1 << 30))
    return list(zip(cases, RUNS["split"], strict=True))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    read=WALL,
    hint="send a token with its weights for that rank's experts; results are weighed and added up"
    " before they go back",
)
def test_merged(answers, probe, dice):
    """Merged: values and gradients on two ranks, as on one process."""
    for case, ranks in split(answers, dice)[: len(EVEN_ONES)]:
        probe.check_merged(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_merged",
    read=WORLD,
    hint="each rank counts its own capacity by arrival; sum experts over replicas, the router over"
    " all ranks, and divide both by n",
)
def test_merged_layouts(answers, probe, dice):
    """Merged: replicas, drops, ranks with more tokens and with none."""
    for case, ranks in split(answers, dice):
        probe.check_merged(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_merged_layouts",
    read=WALL,
    hint="experts stay where they are",
)
def test_merged_alive(answers, probe, dice):
    """Merged: no experts alive but the own ones."""
    case, ranks = split(answers, dice)[-1]
    probe.check_alive(case, ranks, TIMES)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_merged_alive",
    read=WALL,
    hint="count the different ranks of a token's kept experts, not its experts",
)
def test_merged_bytes(answers, probe, dice):
    """Merged: a token goes once to each rank that it needs, and comes back once."""
    for case, ranks in split(answers, dice):
        probe.check_bytes(case, ranks)


# --- a kernel -------------------------------------------------------------------------------------

TILES = [([3], 0, 1, 2, 2, 2), ([2, 5], 0, 1, 3, 2, 2), ([0, 4, 0, 0, 3, 1, 0], 0, 1, 2, 3, 4)]
GATHERED = [([2, 2], 0, 2, 2, 2, 2), ([1, 0, 5, 3], 0, 3, 3, 5, 2)]
LOST = [([1], 1, 1, 1, 1, 1), ([0, 0], 4, 2, 2, 3, 2), ([3, 0, 4], 8, 3, 4, 2, 4)]


def ran_fused(answers, counts, dropped, k, D, N, BLOCK):
    case = f"fused: {counts} choices of each expert, {dropped} dropped, {k=}, {D=}, {N=}, {BLOCK=}"
    return case, answers.probe.fused(counts, dropped, k, D, N, BLOCK)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    read=LAUNCH,
    hint="count the programs of each expert from ends, add them up: whose is yours",
)
def test_fused(answers, probe):
    """Kernel: experts with many rows, with few and with none, k = 1."""
    needs("torch", "triton")
    for sizes in TILES:
        probe.check(*ran_fused(answers, *sizes))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_fused",
    read=LAUNCH,
    hint="choice c is one of token c // k; a dropped one's row of y is zeros, whatever its token"
    " holds",
)
def test_fused_dropped(answers, probe):
    """Kernel: rows of several choices, some of which were dropped."""
    needs("torch", "triton")
    for sizes in (*GATHERED, *LOST):
        probe.check(*ran_fused(answers, *sizes))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_fused_dropped",
    read=LAUNCH,
    hint="a program loads its rows and one matrix, and of what was dropped its numbers alone",
)
def test_fused_loads(answers, probe):
    """Kernel: everything loaded and stored as often as it must be."""
    needs("torch", "triton")
    for sizes in (*TILES, *GATHERED, *LOST):
        probe.check_loads(*ran_fused(answers, *sizes), *sizes[3:5])
