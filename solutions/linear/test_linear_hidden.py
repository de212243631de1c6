"""The hidden tests: 4 of the 20 points, on sizes drawn at random. Each counts once the visible ones
of its function pass, so that no time goes into shrinking what they have shown already."""

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.grade import expect

pytestmark = pytest.mark.hidden
FEW, WIDTH, SEED = st.integers(1, 3), st.integers(1, 6), st.integers(0, 99)


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


@pytest.mark.points(
    0.5,
    after="test_hybrid",
    read="A design problem, worked",
    hint="try states that are larger than the cache, one token each, drafts, and no room for one",
    seconds=30,
)
@given(
    layers=st.integers(1, 12),
    spare=st.integers(-1, 1),
    H=FEW,
    K=WIDTH,
    V=WIDTH,
    G=FEW,
    D=WIDTH,
    sequences=FEW,
    prompt=st.integers(1, 40),
    own=st.integers(0, 40),
    drafts=st.integers(0, 3),
    data=st.data(),
)
def test_hybrid_any(
    answers, probe, layers, spare, H, K, V, G, D, sequences, prompt, own, drafts, data
):
    """Hybrid at any size, with limits that something just keeps, or just does not."""
    of = H, K, V, G, D, sequences, prompt, own, drafts
    found = probe.served(layers, *of)
    near = [found[data.draw(st.sampled_from(sorted(found)), "every")] for _ in range(2)]
    room, step = near[0][0] + spare, near[1][1] - spare
    fit = [e for e, (kept, moved) in found.items() if kept <= room and moved <= step]
    right = (fit[0], *found[fit[0]]) if fit else None
    got = answers.hybrid(layers, room, step, *of)
    case = f"hybrid({layers=}, {room=}, {step=}, {H=}, {K=}, {V=}, {G=}, {D=}, {sequences=}, "
    case += f"{prompt=}, {own=}, {drafts=})"
    expect(case, tuple(got) if isinstance(got, list) else got, right)


@pytest.mark.points(
    0.5,
    seconds=60,
    after="test_packed_steps",
    read="Three forms of one recurrence",
    hint="try documents that end where a chunk does, chunks longer than T, and closed gates",
)
@settings(max_examples=8)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    K=WIDTH,
    V=WIDTH,
    C=st.integers(1, 17),
    strong=st.booleans(),
    seed=SEED,
)
def test_packed_any(answers, probe, lengths, K, V, C, strong, seed):
    """Packed documents of any length, in chunks of any."""
    needs("torch")
    case = f"packed: {lengths=}, {K=}, {V=}, {C=}{', gates that close' * strong}"
    probe.check(case, answers.probe.packed(lengths, K, V, C, strong, seed))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_kda_steps",
    read="Replacing: the delta rule",
    hint="try chunks of one token, a last chunk of one, and gates that close in one channel",
)
@settings(max_examples=8)
@given(
    T=st.integers(1, 24), K=WIDTH, V=WIDTH, C=st.integers(1, 17), strong=st.booleans(), seed=SEED
)
def test_kda_any(answers, probe, T, K, V, C, strong, seed):
    """KDA at any size, with gates of any strength."""
    needs("torch")
    case = f"kda: {T=}, {K=}, {V=}, {C=}{', gates that close' * strong}"
    probe.check(case, answers.probe.kda(T, K, V, C, strong, seed))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=60,
    after="test_both_ways_rounds",
    read="Across ranks: a state instead of keys and values",
    hint="try 2 to 5 ranks, odd and even, and pieces without a token at either end",
)
def test_both_ways_any(answers, probe, dice):
    """Both ways on 2 to 5 ranks, any pieces: right, and within its bytes and rounds."""
    needs("torch")
    cases = [
        ([dice.choice((0, 1, 3, 7)) for _ in range(n)], dice.randint(1, 5), dice.randint(1, 5))
        for n in (2, 3, 4, 5)
    ]
    measured = answers.probe.on_ranks(cases, dice.randrange(1 << 30))
    for case, ranks in zip(cases, measured, strict=True):
        probe.check_result(case, ranks)
        probe.check_sent(case, ranks)
        probe.check_rounds(case, ranks)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_replay_loads",
    read="Decoding: a state beside a cache",
    hint="try sequences without a token, without a draft, and widths of 1",
)
@settings(max_examples=8)
@given(
    N=st.integers(1, 5),
    B=FEW,
    K=WIDTH,
    V=WIDTH,
    TILE_V=st.sampled_from([1, 2, 8]),
    seed=SEED,
    data=st.data(),
)
def test_replay_any(answers, probe, N, B, K, V, TILE_V, seed, data):
    """Kernel at any size: right, inside its tensors, and each element moved once."""
    needs("torch", "triton")
    count = [data.draw(st.integers(0, N), "count") for _ in range(B)]
    settled = [data.draw(st.integers(0, n), "settled") for n in count]
    case = f"replay: {settled=}, {count=}, {N=}, {K=}, {V=}, {TILE_V=}"
    report = answers.probe.replay(settled, count, N, K, V, TILE_V, seed)
    probe.check(case, report)
    probe.check_moved(case, report, settled, count, N, -(-V // TILE_V))
