"""The hidden tests: 5 of the 20 points, on sizes drawn at random. Each counts once the visible ones
of its function pass, so that no time goes into shrinking what they have shown already."""

from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weft.grade import at_most
from weft.plan.comm import lower
from weft.plan.pipeline import Action, Plan, looped, zb_h1, zb_h2, zb_v
from weft.plan.simulate import Deadlock, simulate

pytestmark = pytest.mark.hidden
DURATION = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0])


@pytest.mark.points(
    1,
    after="test_eager_time",
    read="What a hop costs: few bytes, and a wait in every microbatch",
    hint="try a hop of exactly (f + bw) / 2, of none, and of many times f + bw",
    seconds=60,
)
@settings(max_examples=25)
@given(
    f=st.integers(1, 5),
    bw=st.integers(1, 9),
    hops=st.lists(st.integers(0, 15), max_size=4),
    m=st.integers(1, 25),
)
@example(f=3, bw=7, hops=[5, 10, 0], m=25)
def test_eager_any(answers, probe, f, bw, hops, m):
    """Eager with any hops: valid, no more alive than is needed, and never held up."""
    case = f"eager({f=}, {bw=}, {hops=}, {m=})"
    plan = probe.as_plan(case, answers.eager(f, bw, list(hops), m), len(hops) + 1, m)
    probe.played(plan)
    for s, (n, most) in enumerate(zip(probe.live(plan), fewest(probe, f, bw, hops), strict=True)):
        at_most(f"{case}: live microbatches on stage {s}", n, min(m, most))
    took = probe.eager_time(plan.rows, f, bw, hops)
    at_most(f"{case}: makespan", took, probe.eager_least(f, bw, hops, m))


@pytest.mark.points(
    1,
    after="test_flexible_time",
    read="Thinner stages: interleaving",
    hint="try p = 1, v = 1, m below p and m just below a multiple of p",
    seconds=60,
)
@settings(max_examples=30)
@given(p=st.integers(1, 6), m=st.integers(1, 27), v=st.integers(1, 4))
def test_flexible_any(answers, probe, p, m, v):
    """Flexible at any size: valid, within the memory, and in time."""
    case = f"flexible({p=}, {m=}, {v=})"
    plan = probe.as_plan(case, answers.flexible(p, m, v), p, m, v)
    timeline = probe.played(plan)
    limits, makespan = probe.flexible_limits(p, m, v)
    for r, (n, most) in enumerate(zip(probe.live(plan), limits, strict=True)):
        at_most(f"{case}: live activations on rank {r}", n, most)
    at_most(f"{case}: makespan at f=1, b=1, w=1", timeline.makespan, makespan)


@pytest.mark.points(
    1,
    after="test_cut_real",
    read="When to use which",
    hint="try one node, fewer microbatches than ranks, and a head of many layers",
    seconds=60,
)
@settings(max_examples=120)
@given(
    nodes=st.sampled_from([1, 2, 3, 4, 6, 8, 9, 12]),
    batch=st.integers(1, 16),
    layers=st.integers(1, 14),
    layer=st.integers(1, 30),
    table=st.integers(0, 90),
    width=st.integers(1, 4),
    words=st.integers(1, 20),
    tokens=st.integers(1, 4),
    inside=st.integers(0, 600),
    roomy=st.floats(0, 1),
)
def test_cut_any(answers, probe, nodes, batch, inside, roomy, **model):
    """Cut: any model on any nodes."""
    model["kept"] = 2 * model["tokens"] * model["width"] + inside
    cluster = {"nodes": nodes, "memory": 10**9, "rate": 1e3}
    full = []
    for p in probe.depths(cluster, model, batch):
        rank, n = probe.Rank(cluster, model, batch, p, 0), -(-model["layers"] // p)
        full += [rank.nbytes(n, r) for r in range(n + 1)]
    full = sorted(full) or [1]
    cluster["memory"] = 1.001 * full[int(roomy * (len(full) - 1))] / 0.9
    told = f"cut({cluster}, {model}, {batch=})"
    probe.check_cut(told, cluster, model, batch, answers.cut(dict(cluster), dict(model), batch))


@pytest.mark.points(
    1,
    after="test_unequal_time",
    read="Stages that are not equal",
    hint="try limits of 1",
    seconds=60,
)
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
    after="test_run_row_memory",
    tier="processes",
    seconds=60,
    read="Two halves of a backward: zero bubble",
    hint="a rank may have several stages: its row says with whom each speaks",
)
def test_run_row_any(answers, probe, dice):
    """Executor on 1 to 3 ranks: plans of any kind, right, in order, within bytes and memory."""
    if find_spec("torch") is None:
        pytest.skip("not run: needs torch")
    plans = [zb_v(1, 2), zb_h1(2, dice.randint(1, 5)), zb_v(2, dice.randint(1, 4))]
    plans += [zb_h2(3, dice.randint(1, 6))]
    fuse, cases = dice.random() < 0.5, []
    for plan in plans:
        lengths = [dice.randint(1, 4) for _ in range(plan.m)]
        cases.append((lower(plan, fuse=fuse), lengths, dice.randint(1, 4)))
    seed = dice.randrange(1 << 30)
    for case, ranks in zip(cases, answers.probe.on_ranks(cases, seed), strict=True):
        probe.check_result(case, seed, ranks)
        probe.check_messages(case, ranks)
        probe.check_halves(case, ranks)
        probe.check_alive(case, ranks)


LONG = 120  # microbatches, in which a stage with one too few alive falls behind


def fewest(probe, f, bw, hops) -> list[int]:
    """The fewest alive on each stage: for each cut, played as a pipeline of two stages.

    Stages that no cut holds up do not hold each other up: a longer way there and back has as many
    more microbatches in it as its cuts have.
    """
    alive = [1]
    for hop in reversed(hops):
        alive.insert(0, alive[0] - 1 + two(probe, f, bw, hop))
    return alive


@cache
def two(probe, f, bw, hop) -> int:
    """The fewest alive on the first of two stages."""
    most, n = probe.eager_least(f, bw, [hop], LONG), 1
    while probe.eager_time(kept_rows([n, 1], LONG), f, bw, [hop]) > most:
        n += 1
    return n


def kept_rows(alive, m) -> list[list[tuple]]:
    """Rows in which each stage keeps its number alive until its last F."""
    rows = []
    for s, n in enumerate(alive):
        order = [("F", i) for i in range(n)]
        for i in range(m):
            order += [("BW", i), ("F", i + n)]
        rows.append([(kind, i, s) for kind, i in order if i < m])
    return rows


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
