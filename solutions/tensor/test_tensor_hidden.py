"""The hidden tests: 5 of the 20 points, on sizes drawn at random. Each counts once the visible ones
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
    1,
    after="test_reads_files",
    read="Attention: heads are the columns",
    hint="try a kv head on three ranks, and a rank with two of which one is its neighbour's, too",
)
@given(
    group=st.integers(1, 5),
    G=st.integers(1, 6),
    K=st.integers(1, 3),
    t=st.integers(1, 9),
    u=st.integers(1, 9),
    rank=st.integers(0, 8),
)
def test_reads_any(answers, probe, group, G, K, t, u, rank):
    """Reads: any heads, from any files, to any ranks."""
    H = group * G
    t, u = min(t, H), min(u, H)
    rank %= u
    probe.check_reads(H, G, K, t, u, rank, answers.reads(H, G, K, t, u, rank))


@pytest.mark.points(
    1,
    after="test_degree_real",
    read="When to use which",
    hint="try one kv head, six GPUs in a node, and sizes that few t divide",
)
@given(
    gpus=st.integers(1, 8),
    nodes=st.integers(1, 4),
    rate=st.sampled_from([1e4, 1e6, 1e8]),
    inside=st.sampled_from([1e3, 1e5, 1e7]),
    groups=st.integers(1, 8),
    group=st.sampled_from([1, 2, 3, 8]),
    hidden=st.integers(1, 4),
    tokens=st.integers(1, 3),
    layers=st.integers(1, 5),
    width=st.integers(1, 9),
    key=st.integers(1, 5),
    flying=st.integers(1, 6),
    state=st.sampled_from([6, 18]),
    roomy=st.floats(0, 1),
)
def test_degree_any(answers, probe, gpus, nodes, rate, inside, group, roomy, **model):
    """Degree: any model on any nodes."""
    model |= {"heads": group * model["groups"]}
    model |= {"hidden": 12 * model["hidden"], "tokens": 12 * model["tokens"]}
    node = {"gpus": gpus, "memory": 1e12, "rate": rate, "inside": inside, "outside": 1e3}
    every = sorted(one[3] for one in probe.all_degrees(node, model, nodes))
    node["memory"] = int(every[int(roomy * (len(every) - 1))] * 10 / 9) + 1
    told = f"degree({node}, {model}, {nodes=})"
    probe.check_degree(told, node, model, nodes, answers.degree(dict(node), dict(model), nodes))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_finish_alive",
    read="The vocabulary: a loss that never gathers",
    hint="try one word, parts of one column, and a part that is all padding",
)
@settings(max_examples=20)
@given(
    T=st.integers(1, 7),
    parts=st.integers(1, 4),
    size=st.integers(1, 5),
    padding=st.integers(0, 8),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    z=st.sampled_from([0.0, 1e-3]),
    large=st.sampled_from([0.1, 2.0, 100.0]),
    absent=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 999),
)
def test_finish_any(answers, probe, T, parts, size, padding, smoothing, z, large, absent, seed):
    """Finish: any parts of any vocabulary."""
    needs("torch")
    sizes, words = [size] * parts, max(1, parts * size - padding)
    case = f"finish: {T=}, {words=}, parts of {sizes} columns, {smoothing=}, {z=}, {large=}"
    case += f", {absent:.0%} of tokens do not count, {seed=}"
    report = answers.probe.finish(T, words, sizes, smoothing, z, large, absent, seed=seed)
    probe.check_parts(case, report)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_block_bytes",
    read="Sequence parallelism: what an all-reduce hides",
    hint="try a rank with one token, and one with more heads than another",
)
def test_block_any(answers, probe, dice):
    """Block on 1 to 3 ranks: right, with no byte too many."""
    needs("torch")
    cases = []
    for n in (1, 2, 3, 3):
        draw = lambda most, n=n: tuple(dice.randint(1, most) for _ in range(n))  # noqa: E731
        cases.append((draw(4), draw(3), draw(3), dice.randint(1, 4), dice.randint(1, 3)))
    measured = answers.probe.block(cases, dice.randrange(1 << 30))
    for case, ranks in zip(cases, measured, strict=True):
        probe.check_block(case, ranks)
        probe.check_bytes(case, ranks)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_statistics_loads",
    read="What is left on each rank",
    hint="try more rows than there are, a turn with one column left, and words of others",
)
@settings(max_examples=12)
@given(
    T=st.integers(1, 9),
    n=st.integers(0, 9),
    padding=st.integers(0, 3),
    first=st.integers(0, 9),
    rows=st.sampled_from([1, 2, 4]),
    columns=st.sampled_from([1, 2, 4, 8]),
    absent=st.sampled_from([0.0, 0.4, 1.0]),
    large=st.sampled_from([2.0, 100.0]),
    seed=st.integers(0, 999),
)
def test_statistics_any(answers, probe, T, n, padding, first, rows, columns, absent, large, seed):
    """Kernel at any size: right, and nothing loaded or stored too often."""
    needs("torch", "triton")
    stride = max(1, n + padding)
    case = f"statistics: {T=}, {n=}, {stride=}, {first=}, ROWS={rows}, COLUMNS={columns}"
    case += f", {absent:.0%} of tokens do not count, {large=}, {seed=}"
    report = answers.probe.statistics(T, n, stride, first, rows, columns, absent, large, seed)
    probe.check_loads(case, report, n, stride)
