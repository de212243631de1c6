"""The visible tests: 15 of the 20 points. The cases come smallest first."""

import importlib.util
from itertools import product

import pytest

from weft.plan.collectives import BOXES

HEADS = "Attention: heads are the columns"
WORDS = "The vocabulary: a loss that never gathers"
SEQUENCE = "Sequence parallelism: what an all-reduce hides"
COST, WHICH = "What it costs: bytes, a wall, memory", "When to use which"
FUSED = "What is left on each rank"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- reads ----------------------------------------------------------------------------------------

EVEN = [(1, 1, 1, 1), (2, 2, 1, 2), (4, 2, 2, 2), (8, 8, 3, 4), (12, 4, 2, 4)]  # H, G, K, u
COPIES = [(2, 1, 1, 2), (4, 2, 2, 4), (6, 2, 1, 3), (8, 2, 2, 8)]
COPIES += [(5, 1, 2, 3), (6, 2, 3, 4), (9, 3, 1, 2)]
FILES = [  # H, G, K, t, u
    (2, 2, 1, 2, 1),
    (2, 1, 1, 2, 1),
    (4, 2, 2, 2, 4),
    (6, 2, 1, 3, 1),
    (6, 3, 1, 4, 1),
    (8, 4, 1, 6, 2),
    (8, 2, 2, 8, 4),
    (8, 8, 1, 4, 2),
    (9, 3, 2, 4, 2),
    (10, 5, 3, 3, 4),
    (96, 8, 128, 16, 8),
]


def check_reads(answers, probe, H, G, K, t, u):
    for rank in range(u):
        probe.check_reads(H, G, K, t, u, rank, answers.reads(H, G, K, t, u, rank))


@pytest.mark.points(
    1,
    read=HEADS,
    hint="q, k and v lie one behind the other, and each is cut for itself; a rank has the kv heads"
    " that its query heads use, whoever else has them",
)
def test_reads(answers, probe):
    """Reads: from the whole weight, as many heads on each rank, then copies and odd numbers."""
    for H, G, K, u in (*EVEN, *COPIES):
        check_reads(answers, probe, H, G, K, 1, u)


@pytest.mark.points(
    1,
    after="test_reads",
    read=HEADS,
    hint="a file is laid out by its own heads, as many as t makes them",
)
def test_reads_files(answers, probe):
    """Reads: from the files of t ranks, each row once, in few reads."""
    for case in FILES:
        check_reads(answers, probe, *case)


# --- a degree -------------------------------------------------------------------------------------

ROOMY = 10**12  # bytes
SMALL = {"layers": 3, "width": 8, "hidden": 24, "heads": 6, "groups": 2, "key": 4, "tokens": 24}
SMALL |= {"flying": 2, "state": 6}
MANY = SMALL | {"hidden": 96, "heads": 24, "groups": 8, "tokens": 48, "flying": 1}
FITTED = [  # a model, nodes; of the last two, only t = 1 divides all
    *((SMALL, 1), (SMALL, 2), (MANY, 4), (SMALL | {"groups": 6}, 2), (SMALL | {"groups": 1}, 1)),
    *((SMALL | {"hidden": 25}, 2), (SMALL | {"tokens": 25}, 2)),
]
PALM = {"width": 18432, "hidden": 73728, "heads": 48, "groups": 1, "key": 256}
PLUS = {"width": 12288, "hidden": 33792, "heads": 96, "groups": 8, "key": 128}
COMMAND_R = {"width": 8192, "hidden": 22528, "heads": 64, "groups": 64, "key": 128}
REAL = [  # model, layers, flying, state, tokens, box, nodes
    (PLUS, 16, 4, 18, 4096, "dgx-h100", 2),
    (PLUS, 16, 4, 6, 4096, "dgx-h100", 2),
    (PLUS, 16, 4, 18, 8192, "dgx-h100", 8),
    (PLUS, 64, 1, 18, 8192, "dgx-a100", 8),
    (PLUS, 8, 8, 6, 32768, "dgx-h200", 8),
    (PALM, 8, 8, 18, 4096, "dgx-a100", 2),
    (PALM, 8, 8, 6, 8192, "dgx-h200", 2),
    (PALM, 32, 2, 18, 8192, "dgx-h100", 8),
    (COMMAND_R, 8, 8, 6, 4096, "dgx-h200", 1),
    (COMMAND_R, 16, 4, 18, 32768, "dgx-h100", 4),
]


def made(memory=ROOMY, gpus=4, rate=1e6, inside=1e4, outside=1e3):
    return {"gpus": gpus, "memory": memory, "rate": rate, "inside": inside, "outside": outside}


def real(name):
    """A node whose GPUs reach half of their peak."""
    box = BOXES[name]
    links = {"inside": box.inside.bandwidth, "outside": box.outside.bandwidth}
    return {
        "gpus": 8,
        "memory": box.chip.memory,
        "rate": box.chip.rate("bf16") / 2,
    } | links


def real_case(model, layers, flying, state, tokens, box, nodes):
    sizes = {"layers": layers} | model | {"tokens": tokens, "flying": flying, "state": state}
    return real(box), sizes, nodes


def check_degree(answers, probe, node, model, nodes, cheapest=True):
    told = f"degree({node}, {model}, {nodes=})"
    got = answers.degree(dict(node), dict(model), nodes)
    probe.check_degree(told, node, model, nodes, got, cheapest)


def edges(probe, node, model, nodes):
    """Memories in which each choice just fits, and just does not."""
    for *_, kept, _ in probe.all_degrees(node, model, nodes):
        for memory in (10 * kept // 9 - 1, 10 * kept // 9 + 1):
            yield node | {"memory": memory}, model, nodes


@pytest.mark.points(
    1,
    read=COST,
    hint="per layer and number: which lie cut along tokens, which whole, which cut by columns; a"
    " rank has at least one kv head, and the whole norm",
)
def test_degree_memory(answers, probe):
    """Degree: whether one fits, any of these, and how many bytes it takes."""
    for model, nodes in FITTED:
        for case in edges(probe, made(), model, nodes):
            check_degree(answers, probe, *case, cheapest=False)


@pytest.mark.points(
    1,
    after="test_degree_memory",
    read=COST,
    hint="one gather and one scatter for attention and MLP together, in each pass; of T tokens"
    " (t - 1) / t are sent; a copied kv head costs each rank its matmul; attention is causal",
)
def test_degree_time(answers, probe):
    """Degree: what costs least, inside nodes and across."""
    for model, nodes, gpus in ((SMALL, 1, 4), (MANY, 3, 4), (SMALL | {"groups": 1}, 2, 3)):
        for rate, outside in product((1e5, 1e8), (1e2, 1e4)):
            node = made(gpus=gpus, rate=rate, outside=outside)
            for case in edges(probe, node, model, nodes):
                check_degree(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_degree_time",
    read=WHICH,
    hint="ask of each what decides: states, what is kept, or sending between nodes",
)
def test_degree_real(answers, probe):
    """Degree: stages of PaLM 540B, Command R and Command R+ on A100s, H100s and H200s."""
    for case in REAL:
        check_degree(answers, probe, *real_case(*case))


# --- a loss in parts ------------------------------------------------------------------------------

TIMES = 2.5  # the bytes of a part's scores that may be alive
PLAIN = [(1, 1, [1]), (2, 4, [4]), (3, 5, [3, 2]), (9, 10, [4, 3, 3])]  # T, words, sizes of parts
PADDED = [(2, 3, [2, 2]), (3, 5, [4, 4]), (4, 3, [2, 2, 2]), (7, 11, [6, 6]), (5, 4, [4, 4, 4])]
WITHOUT = "a token that does not count has no gradient, and a NaN is still one times 0"
PADDING = "no column behind the last word is one; a part that is all padding says (-inf, 0, 0, 0)"
TERMS = [  # what is asked for, a hint
    ({"smoothing": 0.1}, "the mean is over all words, those of other parts, too"),
    ({"z": 0.01}, "the slope of lse**2 in a score is 2 lse p"),
    ({"absent": 0.4}, WITHOUT),
    ({"absent": 1.0}, WITHOUT),
]
WIDE = 16, 1000, [512, 512]


def ran_finish(answers, T, words, sizes, smoothing=0.0, z=0.0, large=2.0, absent=0.0, middle=0.0):
    case = f"finish: {T=}, {words=}, parts of {sizes} columns, {smoothing=}, {z=}"
    case += f", scores of about {large:g}" if large > 2 else ""
    case += f", scores near {middle:g}" if middle else ""
    case += f", {absent:.0%} of tokens do not count" if absent else ""
    return case, answers.probe.finish(T, words, sizes, smoothing, z, large, absent, middle)


@pytest.mark.points(
    1,
    read=WORDS,
    hint="each part's sum was made with its own largest score; one part alone has the target",
)
def test_finish(answers, probe):
    """Finish: the loss and each part's gradient, with small scores and large ones."""
    needs("torch")
    for large in (2.0, 100.0):
        for sizes in PLAIN:
            probe.check_parts(*ran_finish(answers, *sizes, large=large))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_finish",
    read=WORDS,
    hint="each of these by itself is right: take them together",
)
def test_finish_terms(answers, probe):
    """Finish: smoothing, the square of lse, padding, whole parts of it, and tokens without loss."""
    needs("torch")
    for more, hint in TERMS:
        for sizes in PLAIN[1:]:
            probe.check_parts(*ran_finish(answers, *sizes, **more), hint)
    for sizes in PADDED:
        for middle in (0.0, -150.0):
            probe.check_parts(*ran_finish(answers, *sizes, middle=middle), PADDING)
        probe.check_parts(*ran_finish(answers, *sizes, 0.2, 1e-3, 100.0, 0.3))


@pytest.mark.points(
    1,
    after="test_finish_terms",
    read=WORDS,
    hint="make the gradient once, and go on in its place",
)
def test_finish_alive(answers, probe):
    """Finish: hardly more alive than the gradient."""
    needs("torch")
    case, reports = ran_finish(answers, *WIDE, smoothing=0.1, z=1e-3, absent=0.2)
    probe.check_parts(case, reports)
    T, _, sizes = WIDE
    for i, (report, size) in enumerate(zip(reports, sizes, strict=True)):
        most = int(TIMES * T * size * 4)
        probe.at_most(f"{case}, part {i}: bytes alive", report["alive"], most)


# --- ranks ----------------------------------------------------------------------------------------

RUNS = {}  # the later stages read what the first one ran
ALIKE = [((2,), (1,), (2,), 2, 1), ((2, 2), (1, 1), (2, 2), 3, 2)]  # tokens, heads, columns, D, K
ODD = [
    ((2, 1), (2, 1), (1, 3), 2, 1),
    ((1, 3), (1, 1), (2, 1), 3, 2),
    ((3, 2, 2), (2, 2, 1), (3, 3, 2), 4, 2),
]
GRADED = ((2, 2, 2), (2, 2, 2), (64, 64, 64), 16, 4)
MATRICES = 5  # times the bytes of a rank's own that may be alive


def split(answers, dice):
    """What every rank measured, case by case."""
    needs("torch")
    cases = [*ALIKE, *ODD, GRADED]
    if "split" not in RUNS:
        RUNS["split"] = answers.probe.block(cases, dice.randrange(1 << 30))
    return list(zip(cases, RUNS["split"], strict=True))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    read=SEQUENCE,
    hint="what forward gathers, backward scatters, and the reverse; what all ranks have whole gets"
    " a gradient from each",
)
def test_block(answers, probe, dice):
    """Block: values and gradients on one rank and two, as on one process."""
    for case, ranks in split(answers, dice)[: len(ALIKE)]:
        probe.check_block(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_block",
    read=SEQUENCE,
    hint="take K from wkv, and what is a rank's own from lengths and shapes",
)
def test_block_odd(answers, probe, dice):
    """Block: ranks with more tokens, heads or columns than others."""
    for case, ranks in split(answers, dice):
        probe.check_block(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_block_odd",
    read=SEQUENCE,
    hint="tokens travel: matrices stay where they are",
)
def test_block_alive(answers, probe, dice):
    """Block: no matrices alive but the own ones."""
    case, ranks = split(answers, dice)[-1]
    probe.check_alive(case, ranks, MATRICES)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_block_alive",
    read=COST,
    hint="attention and MLP take what one gather gives, one scatter takes their sum; so backward",
)
def test_block_bytes(answers, probe, dice):
    """Block: two gathers, two scatters, and one sum of what all ranks have whole."""
    for case, ranks in split(answers, dice):
        probe.check_bytes(case, ranks)


# --- a kernel -------------------------------------------------------------------------------------

ROWS = [(1, 1, 1, 0, 1, 1), (2, 3, 3, 0, 2, 4), (3, 4, 4, 2, 2, 2), (5, 7, 7, 3, 2, 4)]
EDGES = [(2, 2, 3, 0, 2, 2), (3, 5, 8, 4, 4, 2), (2, 0, 2, 6, 2, 2), (7, 6, 9, 1, 4, 4)]
CASES = [(size, large, 0.0) for large in (2.0, 100.0) for size in ROWS]
CASES += [(size, 100.0, absent) for absent in (0.0, 0.5) for size in EDGES]


def ran_statistics(answers, sizes, large, absent):
    T, n, stride, first, rows, columns = sizes
    case = f"statistics: {T=}, {n=}, {stride=}, {first=}, ROWS={rows}, COLUMNS={columns}"
    case += f", scores of about {large:g}" if large > 2 else ""
    case += f", {absent:.0%} of tokens do not count" if absent else ""
    return case, answers.probe.statistics(*sizes, absent, large)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    read=FUSED,
    hint="when a turn brings a larger score, what was summed before is scaled to it",
)
def test_statistics(answers, probe):
    """Kernel: rows of several turns, targets in this part and in others."""
    needs("torch", "triton")
    for case in CASES[: 2 * len(ROWS)]:
        probe.check(*ran_statistics(answers, *case))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_statistics",
    read=FUSED,
    hint="anything stands in padding and in rows that do not count: mask what is loaded, and what"
    " a mask leaves out of the largest",
)
def test_statistics_edges(answers, probe):
    """Kernel: padding, a part without a word, tokens that do not count."""
    needs("torch", "triton")
    for case in CASES[2 * len(ROWS) :]:
        probe.check(*ran_statistics(answers, *case))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_statistics_edges",
    read=FUSED,
    hint="one pass: the target's score is in a tile that you have loaded",
)
def test_statistics_loads(answers, probe):
    """Kernel: every score loaded once, and none of padding or of tokens that do not count."""
    needs("torch", "triton")
    for sizes, large, absent in CASES:
        probe.check_loads(*ran_statistics(answers, sizes, large, absent), *sizes[1:3])
