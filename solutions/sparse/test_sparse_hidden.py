"""The hidden tests: 5 of the 20 points, on sizes drawn at random. Each counts once the visible ones
of its function pass, so that no time goes into shrinking what they have shown already."""

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.hidden
HEAD = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5))


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


def heard(case: tuple) -> list[int]:
    """What `heard` should give: layer by layer, who has heard of each token."""
    T, layers, token = case
    of = [{i} for i in range(T)]
    for heads in layers:
        of = [
            {j for left, right, d in heads for at in _near(i, left, right, d, T) for j in of[at]}
            for i in range(T)
        ]
    return sorted(of[token])


def _near(i: int, left: int, right: int, dilation: int, T: int) -> list[int]:
    return [at for x in range(-left, right + 1) if 0 <= (at := i + x * dilation) < T]


@pytest.mark.points(
    1,
    after="test_tally_long",
    read="From pairs to blocks",
    hint="try a window longer than T, global tokens next to each other, and tiles larger than T",
)
@given(
    T=st.integers(1, 50),
    w=st.integers(1, 60),
    marked=st.sets(st.integers(0, 49), max_size=6),
    rows=st.integers(1, 20),
    columns=st.integers(1, 20),
)
def test_tally_any(answers, probe, T, w, marked, rows, columns):
    """Tally for any window, global tokens and tiles."""
    case = T, w, sorted(i for i in marked if i < T), rows, columns
    probe.check_tally(case, answers.tally(*case), probe.counted(case))


@pytest.mark.points(
    1,
    after="test_heard_heads",
    read="What a window sees",
    hint="try windows that reach beyond both ends, and layers in another order",
)
@given(
    T=st.integers(1, 30),
    layers=st.lists(st.lists(HEAD, min_size=1, max_size=3), min_size=1, max_size=4),
    token=st.integers(0, 29),
)
def test_heard_any(answers, probe, T, layers, token):
    """Heard in any layers."""
    token %= T
    case = T, layers, token
    probe.check_heard(case, answers.heard(*case), heard(case))


@pytest.mark.points(
    1,
    after="test_hybrid_real",
    read="A design problem, worked",
    hint="try layers that few numbers divide, prompts shorter than a block, and no room at all",
)
@given(
    layers=st.integers(1, 12),
    heads=st.integers(1, 4),
    kv_heads=st.integers(1, 3),
    head=st.integers(1, 9),
    block=st.integers(1, 9),
    ratio=st.floats(1.0, 5.0),
    chats=st.lists(st.integers(1, 90), min_size=1, max_size=5),
    prompt=st.integers(1, 90),
    p=st.integers(2, 6),
    aim=st.integers(1, 9),
    roomy=st.floats(0.9, 1.3),
    fast=st.floats(0.9, 1.3),
)
def test_hybrid_any(answers, probe, chats, prompt, p, aim, roomy, fast, **model):
    """Hybrid for any model, chats and prompt."""
    kept, took = probe.told_design(model, 1e9, chats, prompt, p, aim * model["block"])
    room, seconds = int(kept * roomy), took * fast * (1 + 1e-6)  # no design's to the last digit
    case = model, room, 1e9, chats, prompt, seconds
    told = f"hybrid({model}, {room=}, rate=1e9, {chats=}, {prompt=}, {seconds=})"
    probe.check_hybrid(told, case, answers.hybrid(*case))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_attend_alive",
    read="After Longformer: lists that are chosen",
    hint="try one token, a block longer than the text, and more blocks asked for than there are",
)
@settings(max_examples=12)
@given(
    T=st.integers(1, 24),
    G=st.integers(1, 3),
    R=st.integers(1, 3),
    K=st.integers(1, 5),
    top=st.integers(1, 9),
    block=st.integers(1, 9),
    empty=st.sets(st.integers(0, 23), max_size=3),
    barred=st.sets(st.integers(0, 9), max_size=2),
    seed=st.integers(0, 999),
)
def test_attend_any(answers, probe, T, G, R, K, top, block, empty, barred, seed):
    """Attend at any size: right, each chosen block read once."""
    needs("torch")
    N = -(-T // block)
    case = {"T": T, "H": G * R, "G": G, "K": K, "top": top, "block": block}
    case |= {"empty": sorted(i for i in empty if i < T), "seed": seed}
    case |= {"barred": sorted(c for c in barred if c < N)}
    told = "attend: " + ", ".join(f"{name}={x}" for name, x in case.items())
    probe.check_reads(told, answers.probe.attend(**case))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_columns_loads",
    read="The kernel: along the lists",
    hint="try lists longer than a tile, blocks of which one key is left, and one channel",
)
@settings(max_examples=10)
@given(
    T=st.integers(1, 50),
    G=st.integers(1, 2),
    R=st.integers(1, 3),
    K=st.integers(1, 20),
    BLOCK=st.sampled_from([16, 32]),
    share=st.integers(0, 4),
    seed=st.integers(0, 999),
)
def test_columns_any(answers, probe, T, G, R, K, BLOCK, share, seed):
    """Kernel at any size: right, everything loaded once and stored once."""
    needs("torch", "triton")
    lists = [
        [
            [t for t in range(T) if (t * 7 + c * 3 + g * 5 + seed) % 5 <= share]
            for c in range(-(-T // BLOCK))
        ]
        for g in range(G)
    ]
    case = f"columns: {T=}, H={G * R}, {G=}, {K=}, {BLOCK=}, {lists=}"[:600]
    report = answers.probe.columns(T, G * R, G, K, BLOCK, lists, seed=seed)
    probe.check_loads(case, report, (T, G * R, G, K, BLOCK), lists)
