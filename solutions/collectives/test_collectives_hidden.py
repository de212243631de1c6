"""The hidden tests: 4 of the 20 points, on sizes drawn at random."""

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.grade import at_most, expect
from weft.plan.collectives import seconds
from weft.plan.hardware import Link

pytestmark = pytest.mark.hidden


@pytest.mark.points(
    0.5, read="A collective is a list of steps", hint="try n = 1 and odd n", seconds=30
)
@settings(max_examples=30)
@given(n=st.integers(1, 20))
def test_reduce_scatter_any(answers, probe, n):
    """Reduce-scatter on any number of ranks: right, within its bytes, and in time."""
    case = f"reduce_scatter({n})"
    steps = probe.as_steps(case, answers.reduce_scatter(n), "reduce_scatter", n, n)
    probe.to_the_right(case, steps)
    for r, count in enumerate(probe.sends_by_rank(steps)):
        expect(f"{case}: chunks sent by rank {r}", count, n - 1)
    expect(f"{case}: number of steps", len(steps), n - 1)


@pytest.mark.points(
    0.5, read="A collective is a list of steps", hint="try n = 1 and odd n", seconds=30
)
@settings(max_examples=30)
@given(n=st.integers(1, 12))
def test_all_reduce_any(answers, probe, n):
    """All-reduce on any number of ranks: right, within its bytes, and in time."""
    case = f"all_reduce({n})"
    steps = probe.as_steps(case, answers.all_reduce(n), "all_reduce", n, n)
    probe.to_the_right(case, steps)
    for r, count in enumerate(probe.sends_by_rank(steps)):
        expect(f"{case}: chunks sent by rank {r}", count, 2 * (n - 1))
    at_most(f"{case}: number of steps", len(steps), 2 * (n - 1))


@pytest.mark.points(
    0.5, read="Trees", hint="try every root, and n that is no power of 2", seconds=30
)
@settings(max_examples=30)
@given(n=st.integers(1, 20), data=st.data())
def test_broadcast_any(answers, probe, n, data):
    """Broadcast from any root: all are reached, once each, in as few steps as can be."""
    root = data.draw(st.integers(0, n - 1))
    case = f"broadcast({n}, root={root})"
    steps = probe.as_steps(case, answers.broadcast(n, root), "broadcast", n, 1, root)
    expect(f"{case}: messages", sum(map(len, steps)), n - 1)
    probe.one_at_a_time(case, steps)
    expect(f"{case}: number of steps", len(steps), (n - 1).bit_length())


@pytest.mark.points(
    1, read="Nodes and rails", hint="try one node, and one rank per node", seconds=30
)
@settings(max_examples=30)
@given(nodes=st.integers(1, 4), local=st.integers(1, 5))
def test_hierarchical_any(answers, probe, nodes, local):
    """Nodes of any number and size: right, within the bytes between nodes, and in time."""
    case, n = f"hierarchical({nodes}, {local})", nodes * local
    steps = probe.as_steps(case, answers.hierarchical(nodes, local), "all_reduce", n, n)
    out = probe.sends_by_rank(steps, lambda s: s.source // local != s.target // local)
    for r, count in enumerate(out):
        expect(f"{case}: chunks that rank {r} sends to other nodes", count, 2 * (nodes - 1))
    probe.one_at_a_time(case, steps)
    at_most(f"{case}: number of steps", len(steps), 2 * (local - 1) + 2 * (nodes - 1))


@pytest.mark.points(0.5, read="Trees", hint="L is log2 n, rounded up", seconds=30)
@settings(max_examples=30)
@given(
    n=st.integers(4, 3000),
    latency=st.sampled_from([1e-6, 14e-6, 0.5]),
    bandwidth=st.sampled_from([1e3, 25e9]),
)
def test_crossover_any(answers, n, latency, bandwidth):
    """Crossover at any n: below it the tree wins, above it the ring, and there neither."""
    got = answers.crossover(n, latency, bandwidth)
    link = Link("any", bandwidth, latency)
    case = f"crossover({n}, {latency}, {bandwidth})"
    at_most(f"{case}: bytes below 0", -got, 0)
    ring, tree = (seconds("all_reduce", got, n, link, how) for how in ("ring", "tree"))
    expect(f"{case}: seconds by ring at {got:g} bytes", ring, tree, within=1e-9 * (ring + tree))


@pytest.mark.points(
    1,
    after="test_run_ring",
    tier="processes",
    seconds=60,
    read="A collective is a list of steps",
    hint="try n = 2, and fewer elements than ranks",
)
def test_run_ring_any(answers, probe, dice):
    """Ring on 2 to 4 ranks and any length: the sum, the ring's sends alone, two chunks alive."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: needs torch")
    cases = [(n, 0) for n in (2, 4)] + [(n, dice.randrange(1, n)) for n in (2, 3, 4)]
    cases += [(n, n * dice.randint(1, 40) + dice.randrange(1, n)) for n in (2, 3, 4)]
    cases.sort(key=lambda case: (case[1], case[0]))
    measured = answers.probe.on_ranks(cases, dice.randrange(1 << 30))
    for case, ranks in zip(cases, measured, strict=True):
        probe.check_sum(case, ranks)
        probe.check_sends(case, ranks)
        probe.check_alive(case, ranks)
