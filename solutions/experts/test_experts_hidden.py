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
    after="test_drops_ranks",
    read="Capacity, and who is dropped",
    hint="try a rank without tokens, and more tokens on one rank than on another",
)
@given(
    E=st.integers(1, 5),
    k=st.integers(1, 3),
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    percent=st.integers(1, 250),
    seed=st.randoms(use_true_random=False),
)
def test_drops_any(answers, probe, E, k, lengths, percent, seed):
    """Drops: any choices on any ranks."""
    k = min(k, E)
    choices = [[seed.sample(range(E), k) for _ in range(length)] for length in lengths]
    given = [list(map(list, tokens)) for tokens in choices]
    probe.check_drops(choices, E, percent, answers.drops(given, E, percent))


@pytest.mark.points(
    1,
    after="test_grid_real",
    read="When to use which",
    hint="try more stages than layers, one expert, and batches that do not divide",
)
@given(
    layers=st.integers(1, 9),
    width=st.integers(1, 9),
    hidden=st.integers(1, 9),
    experts=st.sampled_from([1, 2, 4, 16, 64]),
    k=st.integers(1, 9),
    other=st.integers(1, 5000),
    tokens=st.integers(1, 5),
    kept=st.integers(0, 99),
    gpus=st.sampled_from([1, 2, 4, 8]),
    nodes=st.sampled_from([1, 2, 4, 16]),
    rate=st.sampled_from([1e4, 1e6, 1e8]),
    inside=st.sampled_from([1.2e3, 1e4]),
    steps=st.integers(1, 100),
    roomy=st.floats(0, 1),
)
def test_grid_any(answers, probe, gpus, nodes, rate, inside, steps, roomy, k, experts, **model):
    """Grid: any model on any nodes."""
    model |= {"experts": experts, "k": min(k, experts)}
    node = {"gpus": gpus, "memory": 1e12, "rate": rate, "inside": inside, "outside": 1e3}
    batch = model["tokens"] * steps
    every = sorted(one[3] for one in probe.all_grids(node, model, nodes, batch))
    if every:
        node["memory"] = int(every[int(roomy * (len(every) - 1))] * 10 / 9) + 1
    told = f"grid({node}, {model}, {nodes=}, {batch=})"
    got = answers.grid(dict(node), dict(model), nodes, batch)
    probe.check_grid(told, node, model, nodes, batch, got)


@pytest.mark.points(
    1,
    after="test_balance_operations",
    read="Keeping the load even: a loss or a bias",
    hint="try documents of one token, k = E, and one expert",
)
@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    E=st.integers(1, 9),
    k=st.integers(1, 4),
    full=st.sampled_from([0.0, 0.4, 1.0]),
    large=st.sampled_from([0.1, 2.0, 20.0]),
    middle=st.sampled_from([0.0, -28.0]),
    seed=st.integers(0, 999),
)
def test_balance_any(answers, probe, lengths, E, k, full, large, middle, seed):
    """Balance: any documents."""
    needs("torch")
    T, k = sum(lengths), min(k, E)
    begins = [sum(lengths[:i]) for i in range(len(lengths))]
    case = f"balance: {T=}, {E=}, {k=}, {begins=}, {full:.0%} without room, {large=}, {seed=}"
    case += f", scores around {middle:g}" if middle else ""
    probe.check(case, answers.probe.balance(T, E, k, begins, full, large, seed, middle))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_merged_bytes",
    read="What expert parallelism sends, and when that is the wall",
    hint="try an expert that takes one token of a rank, k = E, and a rank that nothing comes to",
)
def test_merged_any(answers, probe, dice):
    """Merged on 1 to 4 ranks: right, with no byte too many."""
    needs("torch")
    cases = []
    for n, e in ((1, 1), (2, 2), (3, 3), (4, 2)):
        lengths = tuple(dice.choice((0, 1, 3, 6)) for _ in range(n))
        E = e * dice.randint(1, 3)
        sizes = dice.randint(1, E), dice.randint(1, 4), dice.randint(1, 4), dice.randint(1, 4)
        cases.append((lengths, e, E, *sizes))
    measured = answers.probe.merged(cases, dice.randrange(1 << 30))
    for case, ranks in zip(cases, measured, strict=True):
        probe.check_merged(case, ranks)
        probe.check_bytes(case, ranks)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_fused_loads",
    read="One launch for all experts",
    hint="try experts without a choice at both ends, a block wider than all there is, and one row",
)
@settings(max_examples=12)
@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    dropped=st.integers(0, 5),
    k=st.integers(1, 4),
    D=st.integers(1, 5),
    N=st.integers(1, 5),
    BLOCK=st.sampled_from([1, 2, 4, 8]),
    seed=st.integers(0, 999),
)
def test_fused_any(answers, probe, counts, dropped, k, D, N, BLOCK, seed):
    """Kernel at any size: right, and nothing loaded or stored too often."""
    needs("torch", "triton")
    dropped += -(sum(counts) + dropped) % k
    dropped += k * (not sum(counts) + dropped)
    case = f"fused: {counts} choices, {dropped} dropped, {k=}, {D=}, {N=}, {BLOCK=}, {seed=}"
    report = answers.probe.fused(counts, dropped, k, D, N, BLOCK, seed)
    probe.check_loads(case, report, D, N)
