"""The hidden tests: 4 of the 20 points, on sizes drawn at random."""

from contextlib import suppress
from fractions import Fraction
from importlib.util import find_spec
from itertools import product
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weft.grade import at_most, expect
from weft.plan.comm import lower
from weft.plan.pipeline import Action, Plan, interleaved, looped, one_f_one_b
from weft.plan.simulate import Deadlock, simulate

pytestmark = pytest.mark.hidden
DURATION = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0])


@pytest.mark.points(
    0.5,
    read="The program: GPipe and 1F1B by messages",
    hint="try p = 1, m = 1 and m < p",
    seconds=30,
)
@given(p=st.integers(1, 9), m=st.integers(1, 17))
@example(p=12, m=25)
def test_one_f_one_b_any(answers, probe, p, m):
    """1F1B at any size: valid, within p - s microbatches on stage s, and in time."""
    case = f"one_f_one_b(p={p}, m={m})"
    timeline = probe.played(probe.as_plan(case, answers.one_f_one_b(p, m), p, m))
    for s, live in enumerate(timeline.peak_live):
        at_most(f"{case}: live microbatches on stage {s}", live, p - s)
    expect(f"{case}: makespan at f=1, b=1, w=1", timeline.makespan, 3 * (m + p - 1))


@pytest.mark.points(
    0.5,
    read="Thinner stages: interleaving",
    hint="a bubble of exactly the share will do; p - 1 may be 0",
    seconds=30,
)
@given(p=st.integers(1, 40), below=st.integers(1, 999).map(lambda k: k / 1000), v=st.integers(1, 6))
@example(p=9, below=2e-6, v=1)  # four million microbatches
def test_microbatches_any(answers, p, below, v):
    """The least m for any share, on any number of ranks with any number of thin stages."""
    share, step = Fraction(str(below)), 1 if v == 1 else p
    least = (p - 1) * (1 - share) / share / v
    got = answers.microbatches(p, below, v)
    expect(f"microbatches({p=}, {below=}, {v=})", got, step * max(1, ceil(least / step)))


@pytest.mark.points(
    0.5, read="Thinner stages: interleaving", hint="try p = 1, v = 1 and m = p", seconds=30
)
@given(p=st.integers(1, 6), k=st.integers(1, 4), v=st.integers(1, 4))
def test_interleaved_any(answers, probe, p, k, v):
    """Interleaved at any size: valid, within the memory, and in time."""
    m = k * p
    case = f"interleaved(p={p}, m={m}, v={v})"
    timeline = probe.played(probe.as_plan(case, answers.interleaved(p, m, v), p, m, v))
    limits = probe.played(interleaved(p, m, v)).peak_live
    for r, (live, most) in enumerate(zip(timeline.peak_live, limits, strict=True)):
        at_most(f"{case}: live activations on rank {r}", live, most)
    at_most(f"{case}: makespan at f=1, b=1, w=1", timeline.makespan, 3 * (v * m + p - 1))
    most = probe.played(interleaved(p, m, v), c=0.25).makespan
    late = probe.played(timeline.plan, c=0.25).makespan
    at_most(f"{case}: makespan at f=1, b=1, w=1 and hops of 0.25", late, most)


@pytest.mark.points(
    0.5, read="Two halves of a backward: zero bubble", hint="try p = 1 and m = p", seconds=30
)
@given(
    p=st.integers(1, 9),
    more=st.integers(0, 9),
    f=st.integers(1, 4),
    b=st.integers(1, 4),
    w=st.integers(1, 4),
)
def test_zb_h1_any(answers, probe, p, more, f, b, w):
    """ZB-H1 at any size with m of at least p: valid, within p microbatches, and in time."""
    m = p + more
    case = f"zb_h1(p={p}, m={m})"
    timeline = probe.played(probe.as_plan(case, answers.zb_h1(p, m), p, m, splits=True))
    for s, live in enumerate(timeline.peak_live):
        at_most(f"{case}: live microbatches on stage {s}", live, p)
    w = min(f, b, w)
    most = m * (f + b + w) + (p - 1) * (f + b - w)
    makespan = probe.played(timeline.plan, f, b, w).makespan
    at_most(f"{case}: makespan at {f=}, {b=}, {w=}", makespan, most)


@pytest.mark.points(1, read="Stages that are not equal", hint="try limits of 1", seconds=60)
@settings(max_examples=25)
@given(
    stages=st.lists(st.tuples(DURATION, DURATION, st.integers(1, 3)), min_size=1, max_size=4),
    m=st.integers(1, 5),
)
@example(stages=[(1.0, 3.0, 4), (1.0, 6.0, 3), (3.0, 2.0, 2)], m=4)
@example(stages=[(3.0, 4.0, 3), (4.0, 8.0, 3), (3.0, 1.0, 2)], m=5)
def test_unequal_any(answers, probe, stages, m):
    """Unequal stages of any durations and limits: within the limits, and as fast as the best."""
    f, bw, limit = (list(column) for column in zip(*stages, strict=True))
    case = f"unequal(f={f}, bw={bw}, m={m}, limit={limit})"
    plan = probe.as_plan(case, answers.unequal(f, bw, m, limit), len(f), m)
    timeline = probe.played(plan, f, bw, 0.0)
    for s, live in enumerate(timeline.peak_live):
        at_most(f"{case}: live microbatches on stage {s}", live, limit[s])
    at_most(f"{case}: makespan", timeline.makespan, best(f, bw, m, limit))


@pytest.mark.points(
    1,
    after="test_run_row",
    tier="processes",
    seconds=60,
    read="The program: GPipe and 1F1B by messages",
    hint="a rank may have several stages: its row says with whom each speaks",
)
def test_run_row_any(answers, probe, dice):
    """Executor on 2 to 4 ranks: plans of any kind, right, and within their messages and memory."""
    if find_spec("torch") is None:
        pytest.skip("not run: needs torch")
    plans = [one_f_one_b(1, 2), interleaved(2, 4, 2), one_f_one_b(2, dice.randint(1, 5))]
    plans += [interleaved(3, 3, 2), one_f_one_b(4, dice.randint(1, 6))]
    fuse = dice.random() < 0.5
    cases = [(lower(plan, fuse=fuse), dice.randint(1, 5), dice.randint(1, 3)) for plan in plans]
    seed = dice.randrange(1 << 30)
    for case, ranks in zip(cases, answers.probe.on_ranks(cases, seed), strict=True):
        probe.check_result(case, seed, ranks)
        probe.check_messages(case, ranks)
        probe.check_alive(case, ranks)


def best(f, bw, m, limit):
    """The least makespan with a fixed number alive on each stage until its last F."""
    found = float("inf")
    for alive in product(*(range(1, most + 1) for most in limit)):
        rows = tuple(_keep(stage, m, n) for stage, n in enumerate(alive))
        plan = Plan("keep", len(f), m, 1, rows, looped(len(f)))
        with suppress(Deadlock):
            found = min(found, simulate(plan, f, bw, 0.0).makespan)
    return found


def _keep(stage, m, alive):
    order = [("F", i) for i in range(min(alive, m))]
    for i in range(m):
        order += [("BW", i), ("F", i + alive)]
    return tuple(Action(kind, i, stage) for kind, i in order if i < m)
