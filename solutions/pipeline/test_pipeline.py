"""The visible tests: 16 of the 20 points. Each exercise first has to be correct, then to stay
within its memory or its bytes, then to be fast. The cases come smallest first."""

import importlib.util

import pytest

from weft.grade import WrongAnswer, at_most, expect
from weft.plan.comm import lower
from weft.plan.pipeline import Action, Plan, folded, fraction, interleaved, one_f_one_b

SIZES = [(1, 1), (1, 3), (2, 1), (2, 2), (2, 5), (3, 2), (3, 4), (4, 8), (5, 7)]
PROGRAM, FORMULA = "The program: GPipe and 1F1B by messages", "How long a step takes"
THINNER, HALVES = "Thinner stages: interleaving", "Two halves of a backward: zero bubble"
UNEQUAL = "Stages that are not equal"


# --- 1F1B -----------------------------------------------------------------------------------------


@pytest.mark.points(1, read=PROGRAM, hint="each stage: m times F and m times BW, F before its BW")
def test_one_f_one_b_order(answers, probe):
    """1F1B: every stage runs each microbatch forward, then backward, and nobody is stuck."""
    for p, m in SIZES:
        case = f"one_f_one_b(p={p}, m={m})"
        probe.played(probe.as_plan(case, answers.one_f_one_b(p, m), p, m))


@pytest.mark.points(
    1,
    after="test_one_f_one_b_order",
    read=PROGRAM,
    hint="stage s runs ahead of its first backward by the number of stages after it, no further",
)
def test_one_f_one_b_memory(answers, probe):
    """1F1B: stage s never holds more than p - s microbatches."""
    for p, m in SIZES:
        case = f"one_f_one_b(p={p}, m={m})"
        timeline = probe.played(probe.as_plan(case, answers.one_f_one_b(p, m), p, m))
        for s, live in enumerate(timeline.peak_live):  # a few microbatches may need less
            at_most(f"{case}: live microbatches on stage {s}", live, p - s)


@pytest.mark.points(
    1,
    after="test_one_f_one_b_memory",
    read=FORMULA,
    hint="a stage that waits for its first backward could have run another forward",
)
def test_one_f_one_b_time(answers, probe):
    """1F1B: the step takes (m + p - 1)(f + b + w), as with GPipe."""
    for p, m in SIZES:
        case = f"one_f_one_b(p={p}, m={m})"
        plan = probe.as_plan(case, answers.one_f_one_b(p, m), p, m)
        for f, b, w in [(1, 1, 1), (2, 1, 1), (1, 2, 1)]:
            makespan = probe.played(plan, f, b, w).makespan
            expect(f"{case}: makespan at {f=}, {b=}, {w=}", makespan, (m + p - 1) * (f + b + w))


# --- interleaved 1F1B -----------------------------------------------------------------------------

THIN = [
    (1, 2, 2),
    (2, 2, 1),
    (2, 4, 1),
    (2, 2, 2),
    (2, 4, 2),
    (2, 4, 3),
    (3, 3, 2),
    (3, 6, 2),
    (4, 8, 3),
]


@pytest.mark.points(
    1,
    read=THINNER,
    hint="rank r holds stages r, r + p, …: forwards visit them upwards, backwards downwards",
)
def test_interleaved_order(answers, probe):
    """Interleaved: every stage runs each microbatch on its rank, and nobody is stuck."""
    for p, m, v in THIN:
        case = f"interleaved(p={p}, m={m}, v={v})"
        probe.played(probe.as_plan(case, answers.interleaved(p, m, v), p, m, v))


@pytest.mark.points(
    1,
    after="test_interleaved_order",
    read=THINNER,
    hint="only the warm-up is longer than in 1F1B; after it, one forward and one backward in turn",
)
def test_interleaved_memory(answers, probe):
    """Interleaved: what a rank holds does not grow with m."""
    for p, m, v in THIN:
        case = f"interleaved(p={p}, m={m}, v={v})"
        timeline = probe.played(probe.as_plan(case, answers.interleaved(p, m, v), p, m, v))
        limits = probe.played(interleaved(p, m, v)).peak_live
        for r, (live, most) in enumerate(zip(timeline.peak_live, limits, strict=True)):
            at_most(f"{case}: live activations on rank {r}", live, most)


@pytest.mark.points(
    1,
    after="test_interleaved_memory",
    read=THINNER,
    hint="groups of p microbatches, stage by stage; and each rank above the last warms up by two "
    "more, so that a message may be late",
)
def test_interleaved_time(answers, probe):
    """Interleaved: idle for (p - 1)(f + b + w) of a thin stage, and not held up by hops of 0.25."""
    for p, m, v in THIN:
        case = f"interleaved(p={p}, m={m}, v={v})"
        plan = probe.as_plan(case, answers.interleaved(p, m, v), p, m, v)
        makespan = probe.played(plan).makespan
        at_most(f"{case}: makespan at f=1, b=1, w=1", makespan, 3 * (v * m + p - 1))
        most = probe.played(interleaved(p, m, v), c=0.25).makespan
        late = probe.played(plan, c=0.25).makespan
        at_most(f"{case}: makespan at f=1, b=1, w=1 and hops of 0.25", late, most)


# --- how many microbatches ------------------------------------------------------------------------

SHARES = [0.5, 0.3, 0.25, 0.2, 0.1, 0.05]


def check_least(case, got, p, below, v=1):
    """Fail unless `got` microbatches do, and the next smaller number that is allowed does not."""
    step = 1 if v == 1 else p
    if not isinstance(got, int) or got < step or got % step:
        raise WrongAnswer(
            f"{case}: expected a multiple of {step}, at least {step}, got {got!r}",
            "there are whole microbatches, and with v > 1 whole groups of p of them",
        )
    at_most(f"{case}: bubble with {got} microbatches", fraction(p, got, v), below)
    if got > step and fraction(p, got - step, v) <= below:
        exact = "a bubble of exactly the share will do; beware of rounding before rounding up"
        text = f"{case}: got {got}, where {got - step} microbatches would do"
        raise WrongAnswer(text, exact if fraction(p, got - step, v) == below else None)


@pytest.mark.points(
    1,
    read=FORMULA,
    hint="idle over total is (p - 1) / (m + p - 1)",
)
def test_microbatches(answers):
    """The least m for a bubble of at most x, where a bubble of exactly x will do."""
    for p in (1, 2, 3, 4, 5, 8, 16):
        for x in SHARES:
            check_least(f"microbatches(p={p}, below={x})", answers.microbatches(p, x), p, x)


@pytest.mark.points(
    1,
    after="test_microbatches",
    read=THINNER,
    hint="the bubble is (p - 1) / (v m + p - 1), and interleaving wants a multiple of p",
)
def test_microbatches_interleaved(answers):
    """The same with v thin stages per rank, where m has to be a multiple of p."""
    for p in (2, 3, 4, 8):
        for v in (2, 3, 4):
            for x in SHARES:
                case = f"microbatches(p={p}, below={x}, v={v})"
                check_least(case, answers.microbatches(p, x, v), p, x, v)


# --- ZB-H1 ----------------------------------------------------------------------------------------


@pytest.mark.points(
    1, read=HALVES, hint="each stage: m times F, B and W, and each W somewhere after its B"
)
def test_zb_h1_order(answers, probe):
    """ZB-H1: every backward is split into B and W, and nobody is stuck."""
    for p, m in SIZES:
        case = f"zb_h1(p={p}, m={m})"
        probe.played(probe.as_plan(case, answers.zb_h1(p, m), p, m, splits=True))


@pytest.mark.points(
    1,
    after="test_zb_h1_order",
    read=HALVES,
    hint="an activation lives until its W: stage s may owe s of them, no more",
)
def test_zb_h1_memory(answers, probe):
    """ZB-H1: no stage holds more than p microbatches, as the first one in 1F1B."""
    for p, m in SIZES:
        case = f"zb_h1(p={p}, m={m})"
        timeline = probe.played(probe.as_plan(case, answers.zb_h1(p, m), p, m, splits=True))
        for s, live in enumerate(timeline.peak_live):
            at_most(f"{case}: live microbatches on stage {s}", live, p)


@pytest.mark.points(
    1,
    after="test_zb_h1_memory",
    read=HALVES,
    hint="nobody waits for a W: put it where the stage would wait, not before the next B is sent",
)
def test_zb_h1_time(answers, probe):
    """ZB-H1: a third of 1F1B's bubble is left, m (f + b + w) + (p - 1)(f + b - w)."""
    for p, m in SIZES:
        if m >= p:
            case = f"zb_h1(p={p}, m={m})"
            plan = probe.as_plan(case, answers.zb_h1(p, m), p, m, splits=True)
            for f, b, w in [(1, 1, 1), (2, 1, 1), (1, 2, 1), (3, 2, 2)]:
                most = m * (f + b + w) + (p - 1) * (f + b - w)  # nobody says that it is the least
                at_most(
                    f"{case}: makespan at {f=}, {b=}, {w=}",
                    probe.played(plan, f, b, w).makespan,
                    most,
                )


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


def folded_gpipe(p, m):
    """All forwards, then all backwards, on a V: neighbouring stages meet on the last rank."""
    rows = []
    for r in range(p):
        down, up = r, 2 * p - 1 - r
        order = [("F", down), ("F", up), ("BW", up), ("BW", down)]
        rows.append(tuple(Action(kind, i, stage) for kind, stage in order for i in range(m)))
    return Plan("folded_gpipe", p, m, 2, tuple(rows), folded(p))


CASES = [  # plan, width and batch of a message
    (lower(folded_gpipe(2, 3)), 3, 2),
    (lower(one_f_one_b(3, 5), fuse=False), 3, 2),
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


def on_ranks(hint, **more):
    """The marks that the tests on real ranks share."""
    more |= {"tier": "processes", "seconds": 60, "read": PROGRAM, "hint": hint}
    return pytest.mark.points(1, **more)


@on_ranks("a received tensor needs requires_grad_, and what you send back is its .grad")
def test_run_row(answers, probe, dice):
    """Executor: on real ranks, the loss and every gradient equal those of one process to 1e-12."""
    for case, ranks in ran(answers, dice):
        probe.check_result(case, RUNS["seed"], ranks)


@on_ranks("one send per SEND_, one receive per RECV_, where the row has it", after="test_run_row")
def test_run_row_bytes(answers, probe, dice):
    """Executor: each rank sends each message of its row once, in its order, and nothing else."""
    for case, ranks in ran(answers, dice):
        probe.check_messages(case, ranks)


@on_ranks("forget a microbatch's tensors as soon as its BW has run", after="test_run_row_bytes")
def test_run_row_memory(answers, probe, dice):
    """Executor: a rank keeps no more microbatches alive than its plan, plus the one being freed."""
    for case, ranks in ran(answers, dice):
        probe.check_alive(case, ranks)
