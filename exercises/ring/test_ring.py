"""The visible tests: 16 of the 20 points. The cases come smallest first."""

import importlib.util

import pytest

from weft.plan.collectives import BOXES
from weft.plan.ring import positions

WHO, GRID = "Who holds which tokens", "Gather, all-to-all, and both in a grid"
HIDES, HOME = "When sending hides behind computing", "Backward: gradients travel with their keys"
IDEA, FITS = "The idea: parts of a softmax merge", "How long a context fits"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- a deal ---------------------------------------------------------------------------------------

ONE = [([1], 1, 1), ([2], 2, 1), ([4], 2, 1), ([8], 2, 2), ([48], 3, 4), ([64], 4, 4)]
PACKED = [  # documents, n, block
    ([1, 1, 1, 1], 2, 1),
    ([2, 1, 1], 2, 1),
    ([4, 2, 2], 2, 2),
    ([8, 4, 4], 2, 2),
    ([6, 6, 6, 6], 3, 2),
    ([5, 1, 9, 3, 14], 2, 4),
    ([40, 3, 70, 1, 1, 13], 4, 8),
    ([26, 25, 29, 31, 38, 59, 19, 42, 27, 4], 6, 5),
    ([4000, 200, 900, 3092], 8, 64),
    ([1024] * 8, 8, 128),
]


@pytest.mark.points(
    1, read=WHO, hint="each block once, and equally many on each rank: tokens take memory, too"
)
def test_deal(answers, probe):
    """Deal: every block is on one rank, as many on each."""
    for documents, n, block in (*ONE, *PACKED):
        got = answers.deal(list(documents), n, block)
        probe.check_dealt((documents, n, block), got)


@pytest.mark.points(
    1, after="test_deal", read=WHO, hint="later blocks have more scores: mix early and late ones"
)
def test_deal_one(answers, probe):
    """Deal: one document, evenly."""
    for documents, n, block in ONE:
        got = answers.deal(list(documents), n, block)
        probe.check_even((documents, n, block), got)


@pytest.mark.points(
    1,
    after="test_deal_one",
    read=WHO,
    hint="a fold knows nothing of documents: count each block's scores, and deal by them",
)
def test_deal_packed(answers, probe):
    """Deal: packed documents, evenly."""
    for documents, n, block in PACKED:
        got = answers.deal(list(documents), n, block)
        probe.check_even((documents, n, block), got)


# --- GPUs for a prompt ----------------------------------------------------------------------------

SMALL = {"params": 1000, "layers": 2, "heads": 4, "kv_heads": 1, "head": 4}
LLAMA_3 = {"params": 8_030_000_000, "layers": 32, "heads": 32, "kv_heads": 8, "head": 128}
LLAMA_2 = {"params": 6_740_000_000, "layers": 32, "heads": 32, "kv_heads": 32, "head": 128}
MILLION, LONG = 2**20, 10**9  # tokens; seconds, more than any of these take
REAL = [  # node, model, tokens, seconds
    ("dgx-h100", LLAMA_3, MILLION, 2),
    ("dgx-h100", LLAMA_3, MILLION, LONG),
    ("dgx-h100", LLAMA_3, 131072, 0.5),
    ("dgx-h100", LLAMA_3, 131072, 1),
    ("dgx-a100", LLAMA_3, 131072, 0.5),
    ("dgx-h100", LLAMA_2, 131072, 0.5),
    ("dgx-h100", LLAMA_2, MILLION, 6),
    ("dgx-a100", LLAMA_2, MILLION, 60),
    ("dgx-a100", LLAMA_3, MILLION, 1),
]


def made(memory=10**12, gpus=4, rate=1e12, inside=1e9, outside=1e8):
    return {"gpus": gpus, "memory": memory, "rate": rate, "inside": inside, "outside": outside}


def real(name):
    """A node whose GPUs reach 60 % of their peak."""
    box = BOXES[name]
    links = {"inside": box.inside.bandwidth, "outside": box.outside.bandwidth}
    rate = round(0.6 * box.chip.rate("bf16"), -7)
    return {"gpus": box.gpus, "memory": box.chip.memory, "rate": rate} | links


def check_prefill(answers, probe, node, model, T, seconds, parts=4):
    told = f"prefill({node}, {model}, {T=}, {seconds=})"
    got = answers.prefill(dict(node), dict(model), T, seconds)
    probe.check_prefill(told, node, model, T, seconds, got, parts)


def room_edges(probe, node, model, T, grids):
    """Memories and models with which each grid just fits, and does not."""
    for a, b in grids:
        _, _, _, kept = probe.grid(node, model, T, a, b)
        params = model["params"]  # as many more as make tenths whole: then it just fits
        while (kept + 2 * (params - model["params"])) % 9:
            params += 1
        least = (kept + 2 * (params - model["params"])) // 9 * 10
        for memory in (least - 1, least):
            yield node | {"memory": memory}, model | {"params": params}, T, LONG


def time_edges(probe, node, model, T, counts):
    """Times in which so many GPUs, in their fastest grid, are just not in time, and are."""
    for n in counts:
        every = [probe.grid(node, model, T, a, n // a) for a in range(1, n + 1) if n % a == 0]
        took, *_ = min(one for one in every if one)
        for factor in (1 - 1e-6, 1 + 1e-6):
            yield node, model, T, took * factor


@pytest.mark.points(
    1, read=FITS, hint="weights are whole on every GPU; what belongs to tokens divides by n"
)
def test_prefill_memory(answers, probe):
    """Prefill: where memory decides, to the byte, with one kv head."""
    for case in room_edges(probe, made(), SMALL, 2048, [(1, 1), (1, 2), (1, 8)]):
        check_prefill(answers, probe, *case, parts=1)


@pytest.mark.points(
    1,
    after="test_prefill_memory",
    read=HIDES,
    hint="a step takes as long as the longer of computing and sending; outside from the first node"
    " that is full",
)
def test_prefill_ring(answers, probe):
    """Prefill: where time decides, in a ring alone, hidden and not."""
    for rate in (1e9, 1e12, 1e14):
        for case in time_edges(probe, made(rate=rate), SMALL, 2048, (1, 2, 4, 8, 32)):
            check_prefill(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_prefill_ring",
    read=GRID,
    hint="try every a that divides n, the node and the kv heads: each exchanges more, and computes"
    " more in a step",
)
def test_prefill_grid(answers, probe):
    """Prefill: an all-to-all inside and a ring between."""
    for kv_heads, gpus in ((2, 4), (4, 2), (12, 8), (6, 4)):
        model = dict(SMALL, heads=12, kv_heads=kv_heads)
        for rate in (1e10, 1e11, 1e12):
            node = made(rate=rate, gpus=gpus)
            for case in time_edges(probe, node, model, 2048, (2, 4, 8, 16, 64)):
                check_prefill(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_prefill_grid",
    read=GRID,
    hint="first ask of each node and model what decides: room, computing or sending",
)
def test_prefill_real(answers, probe):
    """Prefill: Llama 2 7B and Llama 3 8B on A100s and H100s."""
    for name, model, T, seconds in REAL:
        check_prefill(answers, probe, real(name), model, T, seconds)
    model = dict(SMALL, kv_heads=4)
    for case in room_edges(probe, made(), model, 4096, [(2, 1), (1, 2), (4, 2)]):
        check_prefill(answers, probe, *case)


# --- ranks ----------------------------------------------------------------------------------------

RUNS = {}  # the later stages read what the first one ran
EVEN = [  # positions, window, H, G, K
    (positions(4, 2, "contiguous"), None, 1, 1, 2),
    (positions(8, 2, "zigzag"), None, 4, 2, 3),
]
UNEQUAL = [
    ([[0, 5, 6], [1, 2, 7, 8, 9], [3, 4]], None, 2, 1, 2),
    (positions(9, 3, "contiguous"), 3, 1, 1, 2),
    ([[0, 1, 2, 3], [4], [5, 6, 7]], 4, 2, 2, 2),
    (positions(12, 3, "striped"), None, 2, 2, 3),
]
GRADED = (positions(32, 4, "zigzag"), None, 1, 1, 64)
BLOCKS = 12  # that may be alive


def split(answers, dice):
    """What every rank measured, case by case."""
    needs("torch")
    cases = [*EVEN, *UNEQUAL, GRADED]
    if "split" not in RUNS:
        RUNS["split"] = answers.probe.gradients(cases, dice.randrange(1 << 30))
    return list(zip(cases, RUNS["split"], strict=True))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    read=HOME,
    hint="each rank that sees a block adds its part; all parts come home, and P is that of the"
    " final log-sum-exp",
)
def test_gradients(answers, probe, dice):
    """Gradients: on real ranks, contiguous and folded, as on one."""
    for case, ranks in split(answers, dice)[: len(EVEN)]:
        probe.check_gradients(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_gradients",
    read=WHO,
    hint="who sees what is told by positions: not by ranks, and not by places on a rank",
)
def test_gradients_layouts(answers, probe, dice):
    """Gradients: ranks with more tokens and with fewer, other layouts, and windows."""
    for case, ranks in split(answers, dice):
        probe.check_gradients(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_gradients_layouts",
    read=HOME,
    hint="what nobody sees need not come by; the own part of a gradient need not travel",
)
def test_gradients_bytes(answers, probe, dice):
    """Gradients: a block and its gradients go once to each rank that sees it."""
    for case, ranks in split(answers, dice):
        probe.check_bytes(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_gradients_bytes",
    read=HOME,
    hint="one block is here, one arrives: gathered ones are n",
)
def test_gradients_alive(answers, probe, dice):
    """Gradients: no more alive than a ring needs."""
    case, ranks = split(answers, dice)[-1]
    probe.check_alive(case, ranks, BLOCKS)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_gradients_alive",
    read=HIDES,
    hint="post the next receive before you compute, and wait for it afterwards",
)
def test_gradients_overlap(answers, probe, dice):
    """Gradients: messages travel while a rank computes."""
    case, ranks = split(answers, dice)[-1]
    probe.check_overlap(case, ranks)


# --- a kernel -------------------------------------------------------------------------------------


def ran_arrive(answers, T, rows, V, BLOCK, before=(), part=(), **more):
    case = f"arrive: {T=}, rows={list(rows)}, {V=}, {BLOCK=}"
    case += f", nothing seen before in rows {list(before)}" if before else ""
    case += f", nor in the part's rows {list(part)}" if part else ""
    case += f", lse about {more['lse']}, and the part's {more['apart']} more" if more else ""
    return case, answers.probe.arrive(T, rows, V, BLOCK, before, part, **more)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    read=IDEA,
    hint="the part's log-sum-exp is one in base 2: times log 2; row i of it belongs to rows[i]",
)
def test_arrive(answers, probe):
    """Kernel: parts merge in their rows, and the others stay."""
    needs("torch", "triton")
    for sizes in ((1, [0], 1, 1), (2, [1], 2, 2), (3, [2, 0], 4, 4), (4, [1, 3, 0], 3, 4)):
        probe.check(*ran_arrive(answers, *sizes))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_arrive",
    read=IDEA,
    hint="subtract the larger one before you exponentiate",
)
def test_arrive_large(answers, probe):
    """Kernel: log-sum-exps of all sizes."""
    needs("torch", "triton")
    for lse in (1000.0, -1e5):
        for apart in (0.0, 200.0, -200.0):
            probe.check(*ran_arrive(answers, 3, [2, 0], 4, 4, lse=lse, apart=apart))


UNSEEN = [  # T, rows, V, BLOCK, rows of o and of the part that have seen nothing
    (1, [0], 2, 2, (0,), ()),
    (1, [0], 2, 2, (), (0,)),
    (1, [0], 2, 2, (0,), (0,)),
    (4, [3, 0, 1], 4, 4, (0, 2), (0,)),
]


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_arrive_large",
    read=IDEA,
    hint="minus infinity less minus infinity is NaN, and so is 0 times NaN",
)
def test_arrive_unseen(answers, probe):
    """Kernel: rows that have seen nothing, before or now."""
    needs("torch", "triton")
    for sizes in UNSEEN:
        probe.check(*ran_arrive(answers, *sizes))


WIDE = [(2, [1], 3, 4, (), ()), (2, [0, 1], 5, 2, (1,), ()), (3, [2, 1], 9, 4, (2,), (1,))]


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_arrive_unseen",
    read=IDEA,
    hint="nothing of a row that saw nothing; V in pieces of BLOCK, each once",
)
def test_arrive_loads(answers, probe):
    """Kernel: rows of any width, everything loaded and stored once, and nothing for nothing."""
    needs("torch", "triton")
    for T, rows, V, BLOCK, before, part in (*UNSEEN, *WIDE):
        case, report = ran_arrive(answers, T, rows, V, BLOCK, before, part)
        probe.check_loads(case, report, T, rows, V, before, part)
