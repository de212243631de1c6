"""The visible tests: 15 of the 20 points. The cases come smallest first."""

import importlib.util

import pytest

from weft.grade import at_most
from weft.plan.collectives import BOXES
from weft.plan.comm import lower
from weft.plan.pipeline import Action, Plan, folded, zb_h1

PROGRAM, UNEQUAL = "The program: GPipe and 1F1B by messages", "Stages that are not equal"
HOPS = "What a hop costs: few bytes, and a wait in every microbatch"
THINNER, HALVES = "Thinner stages: interleaving", "Two halves of a backward: zero bubble"
KEPT, WHICH = "What a pipeline does not save: activations", "When to use which"


# --- slow messages --------------------------------------------------------------------------------

SLOW = [  # f, bw, hops, the fewest alive on each stage
    (1, 2, [], [1]),
    (1, 2, [0], [2, 1]),
    (1, 2, [1], [3, 1]),
    (2, 4, [3], [3, 1]),
    (2, 4, [4], [4, 1]),
    (1, 1, [3, 0], [6, 2, 1]),
    (2, 4, [0, 1], [4, 3, 1]),
    (2, 4, [1, 4, 1], [8, 6, 3, 1]),
    (3, 4, [7, 0, 2], [7, 4, 3, 1]),
    (10, 21, [1, 1, 33, 1, 1], [13, 11, 9, 5, 3, 1]),
]
COUNTS = (1, 2, 3, 5, 8, 13, 30)  # microbatches


def eager_case(answers, probe, f, bw, hops, m):
    case = f"eager({f=}, {bw=}, {hops=}, {m=})"
    plan = probe.as_plan(case, answers.eager(f, bw, list(hops), m), len(hops) + 1, m)
    probe.played(plan)
    return case, plan


@pytest.mark.points(1, read=PROGRAM, hint="each stage: m times F and m times BW, F before its BW")
def test_eager_order(answers, probe):
    """Eager: every stage runs each microbatch forward, then backward, and nobody is stuck."""
    for f, bw, hops, _ in SLOW:
        for m in COUNTS:
            eager_case(answers, probe, f, bw, hops, m)


@pytest.mark.points(
    1,
    after="test_eager_order",
    read=HOPS,
    hint="2 (p - 1 - s) forwards ahead would do for any hops up to (f + bw) / 2; ask of each cut"
    " how many more it needs than one, a cut without any message time too",
)
def test_eager_memory(answers, probe):
    """Eager: no stage keeps more microbatches alive than it needs so as not to be held up."""
    for f, bw, hops, fewest in SLOW:
        for m in COUNTS:
            case, plan = eager_case(answers, probe, f, bw, hops, m)
            for s, (n, most) in enumerate(zip(probe.live(plan), fewest, strict=True)):
                at_most(f"{case}: live microbatches on stage {s}", n, min(m, most))


@pytest.mark.points(
    1,
    after="test_eager_memory",
    read=HOPS,
    hint="between two neighbours: how many microbatches share a round of two forwards, two"
    " backwards and two hops?",
)
def test_eager_time(answers, probe):
    """Eager: a step takes (m + p - 1)(f + bw) and the hops of one way there and back."""
    for f, bw, hops, _ in SLOW:
        for m in COUNTS:
            case, plan = eager_case(answers, probe, f, bw, hops, m)
            took = probe.eager_time(plan.rows, f, bw, hops)
            at_most(f"{case}: makespan", took, probe.eager_least(f, bw, hops, m))


# --- groups ---------------------------------------------------------------------------------------

GROUPED = [(1, 1, 2), (2, 1, 1), (2, 2, 1), (2, 2, 2), (2, 3, 1), (2, 3, 2), (3, 2, 2), (2, 5, 2)]
GROUPED += [(2, 5, 3), (3, 4, 2), (3, 7, 2), (3, 8, 2), (3, 11, 3), (4, 9, 2), (4, 3, 3)]
GROUPED += [(4, 14, 2), (5, 19, 2)]  # p, m, v


def flexible_case(answers, probe, p, m, v):
    case = f"flexible({p=}, {m=}, {v=})"
    plan = probe.as_plan(case, answers.flexible(p, m, v), p, m, v)
    return case, plan, probe.played(plan)


@pytest.mark.points(
    1,
    read=THINNER,
    hint="groups of other sizes than p, but of the microbatches that there are; then a forward has"
    " to come before its backward in the largest group, too",
)
def test_flexible_order(answers, probe):
    """Flexible: every stage runs each microbatch on its rank, and nobody is stuck."""
    for case in GROUPED:
        flexible_case(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_flexible_order",
    read=THINNER,
    hint="what m / p leaves need not all go to one group; and a message that takes no time needs no"
    " more warm-up than one step for each rank below",
)
def test_flexible_memory(answers, probe):
    """Flexible: what a rank holds grows with the largest group, and not with m."""
    for p, m, v in GROUPED:
        case, plan, _ = flexible_case(answers, probe, p, m, v)
        limits, _ = probe.flexible_limits(p, m, v)
        for r, (n, most) in enumerate(zip(probe.live(plan), limits, strict=True)):
            at_most(f"{case}: live activations on rank {r}", n, most)


@pytest.mark.points(
    1,
    after="test_flexible_memory",
    read=THINNER,
    hint="a group of fewer than p is through a rank's stage before its first microbatch is round",
)
def test_flexible_time(answers, probe):
    """Flexible: idle for p - 1 forwards and backwards of a thin stage, for any m from p on."""
    for p, m, v in GROUPED:
        case, _, timeline = flexible_case(answers, probe, p, m, v)
        _, most = probe.flexible_limits(p, m, v)
        at_most(f"{case}: makespan at f=1, b=1, w=1", timeline.makespan, most)


# --- a cut ----------------------------------------------------------------------------------------

ROOMY = 10**9  # bytes
TINY = {"layers": 3, "layer": 20, "table": 10, "width": 1, "words": 5, "tokens": 4, "kept": 60}
SMALL = TINY | {"layers": 7, "table": 30}
FITTED = [  # a model, nodes, sequences; the last one has no p that divides all
    *((TINY, 1, 1), (TINY, 2, 2), (TINY, 4, 4), (SMALL, 2, 6), (SMALL, 4, 4), (SMALL, 6, 12)),
    *((SMALL | {"kept": 400}, 4, 2), (SMALL | {"kept": 400}, 6, 4)),
    *((SMALL | {"table": 90}, 4, 8), (TINY, 8, 3)),
]


def sizes(layers, width, groups, key, hidden, words, tokens):
    """Llama's shape: parameters, and what a layer keeps in 16 bits without its scores."""
    kv, D = groups * key, width
    layer = 2 * D * D + 2 * D * kv + 3 * D * hidden + 2 * D
    kept = 2 * tokens * (6 * D + 2 * kv + 3 * hidden)  # inputs of norms and matrices, q, k, v
    return {
        "layers": layers,
        "layer": layer,
        "table": words * D,
        "width": D,
        "words": words,
        "tokens": tokens,
        "kept": kept,
    }


LLAMA_405 = sizes(126, 16384, 8, 128, 53248, 128256, 8192)
LLAMA_70 = sizes(80, 8192, 8, 128, 28672, 128256, 8192)
LLAMA_8 = sizes(32, 4096, 8, 128, 14336, 128256, 8192)
REAL = [  # a model, a box, nodes, sequences
    (LLAMA_405, "dgx-h100", 64, 256),
    (LLAMA_405, "dgx-h100", 256, 512),
    (LLAMA_405, "dgx-h200", 32, 128),
    (LLAMA_405 | {"tokens": 4096, "kept": LLAMA_405["kept"] // 2}, "dgx-h100", 64, 512),
    (LLAMA_70, "dgx-h100", 4, 32),
    (LLAMA_70, "dgx-h100", 16, 32),
    (LLAMA_70, "dgx-h200", 8, 64),
    (LLAMA_70, "dgx-a100", 12, 96),
    (LLAMA_8, "dgx-a100", 6, 24),
]


def real(name, nodes):
    """Nodes of eight GPUs that reach half of their peak."""
    chip = BOXES[name].chip
    return {"nodes": nodes, "memory": 8 * chip.memory, "rate": 8 * chip.rate("bf16") / 2}


def check_cut(answers, probe, cluster, model, batch, shortest=True):
    told = f"cut({cluster}, {model}, {batch=})"
    got = answers.cut(dict(cluster), dict(model), batch)
    probe.check_cut(told, cluster, model, batch, got, shortest)


def edges(probe, nodes, model, batch):
    """Clusters in which a rank with some cut just fits, and just does not."""
    roomy = {"nodes": nodes, "memory": ROOMY, "rate": 1e3}
    full = set()
    for p in probe.depths(roomy, model, batch):
        for s in {0, p - 1}:
            rank = probe.Rank(roomy, model, batch, p, s)
            for n in {model["layers"] // p, -(-model["layers"] // p)}:
                full |= {rank.nbytes(n, r) for r in {0, n // 2, n}}
    for nbytes in sorted(full) or [ROOMY]:
        for more in (0.999, 1.001):
            yield roomy | {"memory": nbytes * more / 0.9}


@pytest.mark.points(
    1,
    read=KEPT,
    hint="rank s keeps p - s microbatches, if there are so many; which ranks have a table, which"
    " have scores; what does the first layer cost that a rank recomputes, and what does it save?",
)
def test_cut_memory(answers, probe):
    """Cut: whether one fits, and layers and recomputed ones with which each rank does."""
    for model, nodes, batch in FITTED:
        for cluster in edges(probe, nodes, model, batch):
            check_cut(answers, probe, cluster, model, batch, shortest=False)


@pytest.mark.points(
    1,
    after="test_cut_memory",
    read=UNEQUAL,
    hint="for each p: how many layers can each rank have, if no rank may take longer than so long?",
)
def test_cut_time(answers, probe):
    """Cut: the shortest step of small models, at any memory."""
    for model, nodes, batch in FITTED:
        for cluster in edges(probe, nodes, model, batch):
            check_cut(answers, probe, cluster, model, batch)


@pytest.mark.points(
    1,
    after="test_cut_time",
    read=WHICH,
    seconds=60,
    hint="a longer pipeline holds fewer states and recomputes less, and has a larger bubble: try"
    " each p, and deal the layers for each anew",
)
def test_cut_real(answers, probe):
    """Cut: Llama 3 8B, 70B and 405B on nodes with A100s, H100s and H200s."""
    for model, box, nodes, batch in REAL:
        check_cut(answers, probe, real(box, nodes), model, batch)


# --- unequal stages -------------------------------------------------------------------------------

STAGES = [  # f, bw, m, limit, the makespan to reach
    ([1], [2], 2, [1], 6),
    ([1, 2], [2, 4], 3, [2, 1], 21),
    ([2, 1], [2, 3], 3, [1, 2], 24),
    ([1, 3, 1], [2, 6, 2], 4, [1, 3, 2], 60),
    ([1, 4, 2], [4, 4, 6], 4, [2, 3, 3], 55),
    ([3, 1, 2], [6, 2, 4], 4, [2, 3, 3], 45),
    ([1, 1, 3], [3, 6, 2], 4, [4, 3, 2], 35),
    ([1, 1, 1, 1.5], [2, 2, 2, 3], 8, [4, 3, 3, 3], 45),
    ([3, 4, 3], [4, 8, 1], 5, [3, 3, 2], 67),
]


@pytest.mark.points(
    1,
    read=UNEQUAL,
    hint="a stage that waits for two microbatches waits for ever if the one before holds only one",
)
def test_unequal_memory(answers, probe):
    """Unequal stages: a valid order, nobody is stuck, and no stage is above its limit."""
    for f, bw, m, limit, _ in STAGES:
        case = f"unequal(f={f}, bw={bw}, m={m}, limit={limit})"
        plan = probe.as_plan(case, answers.unequal(f, bw, m, limit), len(f), m)
        for s, live in enumerate(probe.played(plan, f, bw, 0.0).peak_live):
            at_most(f"{case}: live microbatches on stage {s}", live, limit[s])


@pytest.mark.points(
    1,
    after="test_unequal_memory",
    read=UNEQUAL,
    hint="there are few enough candidates to simulate them all and keep the best",
)
def test_unequal_time(answers, probe):
    """Unequal stages: as fast as the best order with a fixed number alive on each stage."""
    for f, bw, m, limit, most in STAGES:
        case = f"unequal(f={f}, bw={bw}, m={m}, limit={limit})"
        plan = probe.as_plan(case, answers.unequal(f, bw, m, limit), len(f), m)
        # An order in which the numbers alive change on the way may be faster still.
        at_most(f"{case}: makespan", probe.played(plan, f, bw, 0.0).makespan, most)


# --- the executor's inner loop --------------------------------------------------------------------


def split_v(p, m):
    """Halves on a V: a microbatch goes down and up and comes back before the next; W in the end."""
    rows = []
    for r in range(p):
        down, up = r, 2 * p - 1 - r
        order = [("F", down), ("F", up), ("B", up), ("B", down)]
        row = [Action(kind, i, stage) for i in range(m) for kind, stage in order]
        rows.append((*row, *(Action("W", i, stage) for i in range(m) for stage in (up, down))))
    return Plan("split_v", p, m, 2, tuple(rows), folded(p))


CASES = [  # plan, rows of the microbatches, width
    (lower(split_v(2, 2)), [1, 3], 2),
    (lower(zb_h1(3, 5), fuse=False), [2, 1, 4, 2, 3], 3),
]
RUNS = {}  # what the ranks measured: the later tests read what the first one ran


def ran(answers, dice):
    """What every rank measured, case by case."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: needs torch")
    if not RUNS:
        RUNS["seed"] = dice.randrange(1 << 30)
        RUNS["row"] = answers.probe.on_ranks(CASES, RUNS["seed"])
    return zip(CASES, RUNS["row"], strict=True)


def on_ranks(hint, read=PROGRAM, **more):
    """The marks that the tests on real ranks share."""
    more |= {"tier": "processes", "seconds": 60, "read": read, "hint": hint}
    return pytest.mark.points(1, **more)


@on_ranks(
    "every row of the batch counts the same, in whichever microbatch; a received tensor needs"
    " requires_grad_; and a parameter's .grad is a sum over microbatches"
)
def test_run_row(answers, probe, dice):
    """Executor: on real ranks, the loss and every gradient equal those of one process to 1e-12."""
    for case, ranks in ran(answers, dice):
        probe.check_result(case, RUNS["seed"], ranks)


@on_ranks("one send per SEND_, one receive per RECV_, where the row has it", after="test_run_row")
def test_run_row_bytes(answers, probe, dice):
    """Executor: each rank sends each message of its row once, in its order, and nothing else."""
    for case, ranks in ran(answers, dice):
        probe.check_messages(case, ranks)


@on_ranks("each half in its action's place, and once", read=HALVES, after="test_run_row_bytes")
def test_run_row_halves(answers, probe, dice):
    """Executor: B makes the input's gradient alone, W those of the parameters alone, in order."""
    for case, ranks in ran(answers, dice):
        probe.check_halves(case, ranks)


@on_ranks(
    "forget a microbatch's tensors as soon as its W has run",
    read=KEPT,
    after="test_run_row_halves",
)
def test_run_row_memory(answers, probe, dice):
    """Executor: a rank keeps no more microbatches alive than its plan, plus the one being freed."""
    for case, ranks in ran(answers, dice):
        probe.check_alive(case, ranks)
