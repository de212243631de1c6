"""The hidden tests: 5 of the 20 points, on sizes drawn at random. Each counts once the visible ones
of its function pass, so that no time goes into shrinking what they have shown already."""

import importlib.util

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.hidden


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


@pytest.mark.points(
    1,
    seconds=60,
    after="test_crossed_experts",
    read="The odometer: which axis gets which wire",
    hint="try nodes of 3 or 5 ranks, and e that is more than d",
)
@given(
    order=st.permutations("tcdp"),
    t=st.integers(1, 3),
    c=st.integers(1, 3),
    d=st.integers(1, 4),
    p=st.integers(1, 3),
    e=st.integers(1, 12),
    per_node=st.integers(1, 12),
    sent=st.tuples(*[st.integers(0, 99)] * 5),
)
def test_crossed_any(answers, probe, order, t, c, d, p, e, per_node, sent):
    """Crossed: any order of any axes on any nodes."""
    e = max(x for x in range(1, e + 1) if c * d % x == 0)
    sizes, sent = {"t": t, "c": c, "d": d, "p": p, "e": e}, dict(zip("tcdpe", sent, strict=True))
    got = answers.crossed("".join(order), dict(sizes), per_node, dict(sent))
    probe.check_crossed("".join(order), sizes, per_node, sent, got)


RECOMPUTE = st.sampled_from(["none", "selective", "full"])


@pytest.mark.points(
    1,
    after="test_undone_real",
    read="MFU and HFU",
    hint="FLOPs as they were said give the speed; then all pairs, words alone, no table, and for"
    " HFU what the run recomputed, which may be another thing than was said",
)
@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 9),
    tied=st.booleans(),
    matrices=st.integers(2, 3),
    peak=st.sampled_from([1e3, 1e6]),
    recompute=RECOMPUTE,
    counted=RECOMPUTE,
    attention=st.sampled_from(["all", "causal", "none"]),
    head=st.sampled_from(["words", "padded"]),
    table=st.booleans(),
    said=st.sampled_from(["rate", "share", "tokens", "hours"]),
    value=st.floats(0.1, 1.0),
)
def test_undone_any(
    answers, probe, sizes, tied, matrices, peak, recompute, counted, said, value, **counts
):
    """Undone: any model, said in any way."""
    layers, width, groups, group, key, hidden, words, padding, gpus = sizes
    model = {"layers": layers, "width": width, "heads": groups * group, "groups": groups}
    model |= {"key": key, "hidden": hidden, "matrices": matrices, "words": words}
    model |= {"padded": words + padding, "tied": tied}
    run = {"gpus": gpus, "sequences": 4 * gpus, "tokens": 16 * width, "peak": peak}
    run |= {"recompute": recompute}
    said = counts | {"recompute": counted, said: value} | ({"peak": 2e3} if said == "share" else {})
    probe.check_undone(model, run, said, answers.undone(dict(model), dict(run), dict(said)))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_layout_real",
    read="The best layout, and why the runner-up loses",
    hint="try a head that is worth many layers, and more stages than microbatches",
)
@settings(max_examples=60)
@given(
    gpus=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]),
    node=st.sampled_from([1, 2, 4, 6]),
    rate=st.sampled_from([1e4, 1e6]),
    inside=st.sampled_from([1e4, 1e6]),
    outside=st.sampled_from([1e2, 1e4]),
    per_rank=st.integers(1, 5),
    layers=st.integers(1, 13),
    layer=st.integers(1, 2000),
    head=st.integers(0, 6000),
    heads=st.sampled_from([2, 3, 4, 12]),
    words=st.integers(1, 500),
    tokens=st.integers(1, 40),
    width=st.integers(1, 20),
    kept=st.integers(0, 9000),
    roomy=st.floats(0, 1),
)
def test_layout_any(answers, probe, gpus, node, rate, inside, outside, per_rank, roomy, **model):
    """Layout: any model on any cluster."""
    cluster = {"gpus": gpus, "node": node, "memory": 1e15, "rate": rate}
    cluster |= {"inside": inside, "outside": outside}
    batch = gpus * per_rank
    every = sorted(one[6] for one in probe.all_layouts(cluster, model, batch))
    assume(every)
    cluster["memory"] = every[int(roomy * (len(every) - 1))] / 0.9 * (1 + 1e-6)
    told = f"layout({cluster}, {model}, {batch=})"
    got = answers.layout(dict(cluster), dict(model), batch)
    probe.check_layout(told, cluster, model, batch, got)


@pytest.mark.points(
    1,
    seconds=60,
    after="test_rhythm_runs",
    read="When devices fail",
    hint="try a step that is longer than the best time between copies",
)
@settings(max_examples=60)
@given(
    runs=st.lists(st.tuples(st.integers(1, 20000), st.floats(1, 500)), min_size=1, max_size=4),
    hours=st.sampled_from([1e3, 1e4, 1e5]),
    share=st.sampled_from([0.0, 0.3, 0.9]),
    copy=st.floats(0.1, 300),
    write=st.floats(0, 300),
    near=st.floats(0, 600),
    far=st.floats(0, 1800),
)
def test_rhythm_any(answers, probe, runs, hours, share, **costs):
    """Rhythm: any runs."""
    probe.check_rhythm(runs, hours, share, costs, answers.rhythm(list(runs), hours, share, costs))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_clipped_bytes",
    read="The program grown up",
    hint="in turn: shapes that shards do not divide; what t has whole; the embedding, cut or not",
)
def test_clipped_any(answers, probe, dice):
    """Clipped on one to four ranks: right, with no byte too many."""
    needs("torch")
    cases = []
    for sizes in ((1, 1, 2, 1), (2, 1, 1, 2), (1, 2, 1, 2), (2, 2, 1, 1)):
        shape = lambda: tuple(dice.randint(1, 5) for _ in range(dice.randint(0, 3)))  # noqa: E731
        common = shape()
        shapes = tuple((common, shape(), shape()) for _ in range(sizes[0]))
        cut = tuple(dice.random() < 0.5 for _ in range(3))
        tied = 0 if sizes[0] == 2 and dice.random() < 0.7 else None
        cases.append((sizes, shapes, cut, tied, False, dice.choice([0.3, 0.9, 3.0])))
    measured = answers.probe.clipped(cases, dice.randrange(1 << 30))
    for case, ranks in zip(cases, measured, strict=True):
        probe.check_clipped(case, ranks)
        probe.check_bytes(case, ranks)
