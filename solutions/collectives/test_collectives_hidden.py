"""The hidden tests: 4 of the 20 points, on sizes drawn at random. Each counts once the visible ones
of its function pass, so that no time goes into shrinking what they have shown already."""

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.hidden


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


@pytest.mark.points(
    0.5, after="test_gather_far", read="Trees", hint="try n just above a power of two, and below"
)
@settings(max_examples=20)
@given(n=st.integers(1, 40))
def test_gather_any(answers, probe, n):
    """Gather on any number of ranks: right, in few steps, far messages small."""
    steps = probe.gathered(n, answers.gather(n))
    probe.check_gather_steps(n, steps)
    probe.check_far(n, steps)


@pytest.mark.points(
    0.5,
    after="test_swap_steps",
    read="All-to-all is a problem of its own",
    hint="try one node, and one rank per node",
)
@settings(max_examples=20)
@given(nodes=st.integers(1, 5), local=st.integers(1, 5))
def test_swap_any(answers, probe, nodes, local):
    """Swap on nodes of any number and size: right, on rails, in few steps."""
    steps = probe.swapped(nodes, local, answers.swap(nodes, local))
    probe.check_rails(nodes, local, steps)
    probe.check_swap_steps(nodes, local, steps)


@pytest.mark.points(
    1,
    after="test_both_ways_alive",
    tier="processes",
    seconds=60,
    read="A collective is a list of steps",
    hint="try ranks that own nothing, and all that there is on one",
)
def test_both_ways_any(answers, probe, dice):
    """Both ways on 2 to 5 ranks and any chunks: the sum, each sent once, in few calls."""
    needs("torch")
    cases = [(0,) * dice.randint(2, 5)]
    for n in (2, 3, 4, 5):
        cases.append(tuple(dice.choice([0, 1, dice.randint(2, 40)]) for _ in range(n)))
        cases.append(tuple(dice.randint(1, 40) for _ in range(n)))
    cases.sort(key=lambda sizes: (sum(sizes), len(sizes)))
    measured = answers.probe.both_ways(cases, dice.randrange(1 << 30))
    for sizes, ranks in zip(cases, measured, strict=True):
        probe.check_sum(sizes, ranks)
        probe.check_sent(sizes, ranks)
        probe.check_calls(sizes, ranks)


@pytest.mark.points(
    1,
    after="test_buckets_taken",
    read="When to set what, and a design problem",
    hint="try gradients of unequal sizes, an algorithm that is missing, and calls that queue",
)
@settings(max_examples=20)
@given(
    nodes=st.sampled_from([2, 4, 16]),
    gpus=st.integers(2, 9),
    grads=st.lists(
        st.tuples(st.integers(1, 4000).map(float), st.integers(0, 200).map(float)),
        min_size=1,
        max_size=9,
    ),
    taken=st.tuples(*[st.integers(0, 6)] * 3),
    start=st.sampled_from([0.0, 1.0, 30.0]),
    port=st.sampled_from([5.0, 40.0, 300.0]),
    missing=st.sampled_from(["Ring", "Tree", "NVLS"]),
)
def test_buckets_any(answers, probe, nodes, gpus, grads, taken, start, port, missing):
    """Buckets for any gradients, on any cluster."""
    names = "Ring", "Tree", "NVLS"
    quick = {"share": 0.75, "most": 70.0} | dict.fromkeys(names, (start, 0.25, 0.5))
    slow = {"share": 1.0, "most": 250.0} | dict.fromkeys(names, (2 * start, 1.0, 3.0))
    del quick[missing], slow["Tree"]
    cluster = {"nodes": nodes, "gpus": gpus, "wire": 100.0, "port": port, "sms": 8}
    cluster |= {"taken": dict(zip(names, taken, strict=True))}
    cluster |= {"protocols": {"quick": quick, "slow": slow}}
    got = answers.buckets(cluster, list(grads))
    told = f"buckets: {nodes} nodes of {gpus}, {port=}, {taken=} of 8 SMs, {start=}, {grads}"
    probe.check_buckets(told, cluster, grads, got)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_normed_loads",
    read="Without messages: symmetric memory and copy engines",
    hint="try more rows in a tile than tokens, and a row with one number",
)
@settings(max_examples=12)
@given(
    n=st.integers(1, 5),
    before=st.integers(0, 3),
    count=st.integers(1, 6),
    behind=st.integers(0, 3),
    D=st.integers(1, 9),
    rows=st.sampled_from([1, 2, 4, 8]),
    wide=st.sampled_from([1, 2]),
    large=st.sampled_from([1.0, 40.0]),
    seed=st.integers(0, 999),
)
def test_normed_any(answers, probe, n, before, count, behind, D, rows, wide, large, seed):
    """Kernel at any size: right, and nothing loaded or stored too often."""
    needs("torch", "triton")
    columns = wide << (D - 1).bit_length()
    sizes = n, before + count + behind, D, before, count
    case = "normed: n={}, T={}, D={}, first={}, count={}".format(*sizes)
    case += f", ROWS={rows}, COLUMNS={columns}, summands of about {large:g}, {seed=}"
    report = answers.probe.normed(*sizes, rows, columns, large, seed)
    probe.check_moved(case, report, *sizes)
