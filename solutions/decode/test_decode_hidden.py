"""The hidden tests: 4 of the 20 points, on sizes drawn at random."""

import importlib.util
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.grade import expect
from weft.plan.decode import Blocks, CacheFull

pytestmark = pytest.mark.hidden


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


@st.composite
def operations(draw):
    """Right operations on a pool that is often full, and what has to come of them."""
    count, block = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    pool, made, held, refused = Blocks(count, block), [], [], []
    for i in range(draw(st.integers(1, 10))):
        kinds = ["extend", "extend", "fork", "drop", "add"] if pool.sequences else ["add"]
        kind, new = draw(st.sampled_from(kinds)), f"s{i}"
        name = new if kind == "add" else draw(st.sampled_from(pool.sequences))
        more = [draw(st.integers(0, block + 2))] if kind in ("add", "extend") else []
        more = [new] if kind == "fork" else more
        made.append([kind, name, *more])
        try:
            getattr(pool, kind)(name, *more)
        except CacheFull:
            refused.append(i)
        held.append(pool.count - pool.free)
    return count, block, made, held, refused


@pytest.mark.points(
    0.5,
    after="test_fits_sequences",
    read="Blocks: room when it is needed",
    hint="try a memory without a block, a sequence of one token, and sizes beyond 2^53",
    seconds=30,
)
@given(
    memory=st.integers(0, 10**6) | st.integers(10**9, 10**18),
    tokens=st.integers(1, 3000),
    layers=st.integers(1, 90),
    kv_heads=st.integers(1, 8),
    group=st.integers(1, 8),
    head=st.integers(1, 128),
    size=st.sampled_from([1, 2, 4]),
    block=st.integers(1, 256),
)
def test_fits_any(answers, memory, tokens, layers, kv_heads, group, head, size, block):
    """Bytes and sequences for any model in any memory."""
    heads = kv_heads * group
    given = memory, tokens, layers, heads * head, heads, kv_heads, size, block
    each = 2 * layers * kv_heads * head * size
    right = [each, memory // (each * block) // ceil(tokens / block)]
    expect(f"fits{given}", list(answers.fits(*given)), right)


@pytest.mark.points(
    0.5,
    after="test_allot_full",
    read="Sharing a prefix, and copying when written",
    hint="try forks of forks, drops of a parent, and blocks of 1",
    seconds=60,
)
@settings(max_examples=150)
@given(played=operations())
def test_allot_any(answers, probe, played):
    """Blocks under any operations: nobody's tokens change, none wasted, full when it is full."""
    count, block, made, held, refused = played
    case = f"allot({made}, {count=}, {block=})"
    got = probe.Played(case, made, answers.allot(made, count, block), count, block)
    expect(f"{case}: operations refused", got.refused, refused)
    expect(f"{case}: blocks held after each", got.held, held)


@pytest.mark.points(
    1,
    after=("test_paged_memory", "test_paged_bytes"),
    tier="chip",
    seconds=60,
    read="The program: blocks and batches",
    hint="try blocks of 1, fewer tokens than a block, and a value width that is not the key's",
)
@settings(max_examples=20)
@given(
    length=st.integers(0, 20),
    block=st.integers(1, 6),
    G=st.integers(1, 3),
    R=st.integers(1, 3),
    K=st.integers(1, 5),
    V=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_paged_any(answers, probe, length, block, G, R, K, V, seed):
    """Paged at any size: right, and everything is read once."""
    needs("torch")
    case = f"paged: {length=}, {block=}, H={G * R}, {G=}, {K=}, {V=}"
    report = answers.probe.paged(length, block, G * R, G, K, V, 1 << 20, loud=20.0, seed=seed)
    probe.check(case, report)
    probe.check_paged(case, report, length)


@pytest.mark.points(
    1,
    after="test_piece_loads",
    tier="chip",
    seconds=60,
    read="One reading, many programs",
    hint="try a length of 0, and more pieces than the sequence fills",
)
@settings(max_examples=10)
@given(
    length=st.integers(0, 30),
    BLOCK=st.sampled_from([2, 4, 8]),
    blocks=st.integers(1, 3),
    more=st.integers(0, 2),
    K=st.sampled_from([2, 8]),
    seed=st.integers(0, 99),
)
def test_piece_any(answers, probe, length, BLOCK, blocks, more, K, seed):
    """Piece at any length and cut: right, and nothing is loaded twice."""
    needs("torch", "triton")
    each = blocks * BLOCK
    pieces = max(1, ceil(length / each) + more)
    case = f"piece: {length=}, {each=}, {pieces=}, {K=}, {BLOCK=}"
    report = answers.probe.piece(length, each, pieces, K, BLOCK, loud=20.0, seed=seed)
    probe.check(case, report)
    probe.check_piece(case, report, length, each, pieces, BLOCK)


@pytest.mark.points(
    1,
    after="test_merge_extremes",
    tier="chip",
    seconds=60,
    read="One reading, many programs",
    hint="try a single piece in room for many, and heads of which every piece has seen nothing",
)
@settings(max_examples=15)
@given(
    H=st.integers(1, 3),
    pieces=st.integers(1, 6),
    K=st.sampled_from([2, 8]),
    loud=st.sampled_from([0.0, 1000.0, -1000.0, -1e5]),
    data=st.data(),
)
def test_merge_any(answers, probe, H, pieces, K, loud, data):
    """Merge of any pieces, some or all of which have seen nothing."""
    needs("torch", "triton")
    places = [(h, i) for h in range(H) for i in range(pieces)]
    blank = sorted(data.draw(st.sets(st.sampled_from(places))))
    case = f"merge: {H=}, {pieces=}, {K=}, N=8, lse near {loud:g}, seen nothing: {blank}"
    report = answers.probe.merge(H, pieces, K, 8, loud, [list(b) for b in blank])
    probe.check(case, report)
    probe.check_merge(case, report, blank)
