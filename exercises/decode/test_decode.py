"""The visible tests: 16 of the 20 points. Each exercise first has to be correct, then to stay
within its memory or its bytes. The cases come smallest first."""

import importlib.util

import pytest

from weft.grade import expect
from weft.plan.decode import Blocks, CacheFull, bytes_per_token
from weft.plan.shape import SHAPES

BYTES, WHO = "How many bytes a token leaves", "Blocks: room when it is needed"
FULL, SHARING = "When the cache is full", "Sharing a prefix, and copying when written"
GATHER, PIECES = "The program: blocks and batches", "One reading, many programs"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- bytes ----------------------------------------------------------------------------------------

MODELS = [  # layers, width, heads, kv_heads, size
    (1, 4, 2, 2, 1),
    (1, 8, 4, 2, 1),
    (2, 12, 4, 1, 2),
    (3, 20, 5, 5, 4),
    (80, 8192, 64, 8, 2),
    (40, 5120, 40, 40, 2),
]


def cost(layers, width, heads, kv_heads, size):
    return 2 * layers * kv_heads * (width // heads) * size


@pytest.mark.points(
    1,
    read=BYTES,
    hint="a key and a value, in each layer, for each head of keys and values",
)
def test_fits_bytes(answers):
    """Bytes per token: of models with and without grouped heads."""
    for layers, width, heads, kv_heads, size in MODELS:
        case = f"fits({layers=}, {width=}, {heads=}, {kv_heads=}, {size=}): bytes for each token"
        got = answers.fits(10**9, 7, layers, width, heads, kv_heads, size, 4)
        each = got[0] if isinstance(got, list | tuple) and got else got
        expect(case, each, cost(layers, width, heads, kv_heads, size))
    shape = SHAPES["llama2-70b"]
    assert cost(*MODELS[4]) == bytes_per_token(shape)


@pytest.mark.points(
    1,
    after="test_fits_bytes",
    read=WHO,
    hint="how many blocks has the memory, and how many does a sequence take, rounded up",
)
def test_fits_sequences(answers):
    """Sequences: as many as get all their blocks, and a block is never a part of one."""
    for tokens, block, blocks, expected in (
        (4, 4, 1, 1), (5, 4, 1, 0), (5, 4, 2, 1), (8, 4, 5, 2), (9, 4, 8, 2), (9, 1, 27, 3),
        (100, 16, 70, 10), (1000, 16, 190, 3), (1000, 256, 190, 47), (1, 1, 2**53 + 1, 2**53 + 1),
    ):  # fmt: skip
        for more in (0, 1):
            memory = blocks * block * cost(2, 12, 4, 1, 2) + more
            case = f"fits(memory={memory}, {tokens=}, layers=2, width=12, heads=4, kv_heads=1, "
            case += f"size=2, {block=})"
            got = answers.fits(memory, tokens, 2, 12, 4, 1, 2, block)
            whole = "whole blocks of the memory, and whole blocks for a sequence: divide with //"
            expect(case, list(got), [cost(2, 12, 4, 1, 2), expected], hint=whole)


# --- blocks ---------------------------------------------------------------------------------------


def expected(operations, count, block):
    """After each operation, how many blocks must be held, and which operations have no room."""
    pool, held, refused = Blocks(count, block), [], []
    for i, (kind, name, *more) in enumerate(operations):
        try:
            getattr(pool, kind)(name, *more)
        except CacheFull:
            refused.append(i)
        held.append(pool.count - pool.free)
    return held, refused


def played(answers, probe, operations, count, block):
    case = f"allot({count=}, {block=})"
    steps = answers.allot([list(operation) for operation in operations], count, block)
    return probe.Played(case, operations, steps, count, block)


ALONE = [
    ("add", "a", 3), ("extend", "a", 1), ("extend", "a", 1), ("add", "b", 9), ("extend", "a", 6),
    ("extend", "b", 1), ("add", "c", 0), ("extend", "c", 2), ("extend", "b", 0), ("drop", "a"),
    ("extend", "c", 11),
]  # fmt: skip


@pytest.mark.points(
    1, read=WHO, hint="take a block whenever the last one is full; nobody else may hold it"
)
def test_allot(answers, probe):
    """Blocks: every token has a slot of its own, for sequences that come and grow."""
    for block in (1, 4, 3):
        played(answers, probe, ALONE, 60, block)


@pytest.mark.points(
    1,
    after="test_allot",
    read=WHO,
    hint="ceil(tokens / block) blocks for each sequence, and those of a dropped one are free again",
)
def test_allot_waste(answers, probe):
    """Blocks: no sequence holds one that it does not need, and dropped ones are used again."""
    for block in (1, 4, 3):
        held, _ = expected(ALONE, 60, block)
        got = played(answers, probe, ALONE, 60, block).held
        for i, (mine, needed) in enumerate(zip(got, held, strict=True)):
            case = f"allot(count=60, {block=}): blocks held after operation {i}, {ALONE[i]}"
            expect(case, mine, needed)
    again = [("add", "a", 8)] + [("drop", "a"), ("add", "a", 8)] * 3
    got = played(answers, probe, again, 2, 4)
    expect("allot(count=2, block=4): operations refused", got.refused, [])


FORKED = [
    ("add", "a", 6), ("fork", "a", "b"), ("extend", "b", 1), ("extend", "a", 3), ("fork", "b", "c"),
    ("extend", "c", 2), ("extend", "b", 4), ("drop", "a"), ("extend", "c", 5), ("extend", "b", 1),
]  # fmt: skip


@pytest.mark.points(
    1,
    after="test_allot",
    read=SHARING,
    hint="count the holders of each block: a fork adds one, a drop takes one, at 0 it is free",
)
def test_allot_fork(answers, probe):
    """Sharing: whoever writes, the tokens of all others stay what they were."""
    for block in (4, 3, 5):
        played(answers, probe, FORKED, 60, block)
    simple = [
        ("add", "a", 4),
        ("fork", "a", "b"),
        ("drop", "a"),
        ("add", "c", 4),
        ("extend", "b", 1),
    ]
    played(answers, probe, simple, 4, 4)


@pytest.mark.points(
    1,
    after=("test_allot_fork", "test_allot_waste"),
    read=SHARING,
    hint="a fork holds what its parent holds; only a last block with several holders is copied",
)
def test_allot_shared(answers, probe):
    """Sharing: a fork costs no block, and the last one to write into a block writes in place."""
    for block in (4, 3, 5):
        held, _ = expected(FORKED, 60, block)
        got = played(answers, probe, FORKED, 60, block).held
        for i, (mine, needed) in enumerate(zip(got, held, strict=True)):
            case = f"allot(count=60, {block=}): blocks held after operation {i}, {FORKED[i]}"
            expect(case, mine, needed)


TIGHT = [  # count, block, operations
    (2, 4, [("add", "a", 9), ("add", "b", 8), ("extend", "b", 1)]),
    (3, 4, [("add", "a", 8), ("extend", "a", 5), ("extend", "a", 4), ("drop", "a"),
            ("add", "b", 9)]),
    (3, 4, [("add", "a", 6), ("fork", "a", "b"), ("extend", "b", 3), ("extend", "b", 1),
            ("extend", "a", 3), ("extend", "a", 2)]),
    (2, 4, [("add", "a", 6), ("fork", "a", "b"), ("extend", "b", 1), ("drop", "a"),
            ("extend", "b", 1)]),
]  # fmt: skip


@pytest.mark.points(
    1,
    after=("test_allot_fork", "test_allot_waste"),
    read=FULL,
    hint="count what all steps of an operation need, a copy too, before you do the first one",
)
def test_allot_full(answers, probe):
    """Full: None exactly where there is too little room, and then nothing has changed."""
    for count, block, operations in TIGHT:
        held, refused = expected(operations, count, block)
        got = played(answers, probe, operations, count, block)
        case = f"allot({operations}, {count=}, {block=})"
        expect(f"{case}: operations refused", got.refused, refused)
        expect(f"{case}: blocks held after each", got.held, held)


# --- reading a cache in tiles ---------------------------------------------------------------------

GRADED = 100, 16, 8, 2, 32, 32  # length, block, H, G, K, V
SIZES = "length={}, block={}, H={}, G={}, K={}, V={}"


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    read=GATHER,
    hint="block i of the sequence is table[i]; head h uses kv head h // (H / G); rescale as you go",
)
def test_paged(answers, probe):
    """Paged: right for any heads, where the tokens fill their blocks."""
    needs("torch")
    for sizes in (
        (2, 2, 1, 1, 2, 2),
        (8, 4, 2, 2, 3, 3),
        (8, 4, 6, 2, 4, 3),
        (48, 16, 8, 2, 32, 32),
    ):
        for loud in (1.0, 60.0):
            case = f"paged: {SIZES.format(*sizes)}, scores up to about {loud:g}"
            probe.check(case, answers.probe.paged(*sizes, 1 << 20, loud=loud))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_paged",
    read=GATHER,
    hint="load only the slots that have a token: the others are not numbers, and 0 * NaN is NaN",
)
def test_paged_ragged(answers, probe):
    """Paged: any number of tokens, none of the slots behind them, and 0 for no tokens at all."""
    needs("torch")
    for sizes in ((1, 2, 1, 1, 2, 2), (5, 4, 4, 2, 3, 3), (0, 4, 4, 2, 3, 5), GRADED):
        probe.check(f"paged: {SIZES.format(*sizes)}", answers.probe.paged(*sizes, 1 << 20))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_paged_ragged",
    read=GATHER,
    hint="one block of keys and one of values at a time; `del` them before you load the next",
)
def test_paged_memory(answers, probe):
    """Paged: 100 tokens within 8 KiB of tile memory."""
    needs("torch")
    case = f"paged: {SIZES.format(*GRADED)}, 8 KiB"
    probe.check(case, answers.probe.paged(*GRADED, 8 * 1024))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_paged_ragged",
    read=PIECES,
    hint="all heads of a group at once: their queries are the rows of one tile",
)
def test_paged_bytes(answers, probe):
    """Paged: each key and each value is read once, for all heads that share it."""
    needs("torch")
    for sizes in ((8, 4, 2, 1, 2, 2), GRADED):
        report = answers.probe.paged(*sizes, 1 << 20)
        probe.check_paged(f"paged: {SIZES.format(*sizes)}", report, sizes[0])


# --- kernels --------------------------------------------------------------------------------------


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    read=PIECES,
    hint="block (start // BLOCK) of the table; divide by the sum last; lse = maximum + log(sum)",
)
def test_piece(answers, probe):
    """Piece: right for every piece of full blocks, at small and large scores."""
    needs("torch", "triton")
    for length, each, pieces, K, BLOCK in ((2, 2, 1, 2, 2), (8, 4, 2, 2, 2), (32, 16, 2, 8, 8)):
        for loud in (1.0, 300.0):
            case = f"piece: {length=}, {each=}, {pieces=}, {K=}, {BLOCK=}, scores to {loud:g}"
            probe.check(case, answers.probe.piece(length, each, pieces, K, BLOCK, loud=loud))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_piece",
    read=PIECES,
    hint="stop at the length; in the last block mask the loads and give no token a score of -inf",
)
def test_piece_ragged(answers, probe):
    """Piece: any length, with nothing touched behind it, and pieces without a token."""
    needs("torch", "triton")
    for length, each, pieces, K, BLOCK in ((1, 2, 1, 2, 2), (5, 4, 3, 2, 2), (37, 16, 4, 8, 8)):
        case = f"piece: {length=}, {each=}, {pieces=}, {K=}, {BLOCK=}"
        probe.check(case, answers.probe.piece(length, each, pieces, K, BLOCK))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_piece_ragged",
    read=PIECES,
    hint="one pass: keep up the maximum, the sum and the output, and load a block of each once",
)
def test_piece_loads(answers, probe):
    """Piece: each key, value and table entry of the sequence is loaded exactly once."""
    needs("torch", "triton")
    for length, each, pieces, K, BLOCK in ((8, 4, 2, 2, 2), (37, 16, 4, 8, 8)):
        case = f"piece: {length=}, {each=}, {pieces=}, {K=}, {BLOCK=}"
        report = answers.probe.piece(length, each, pieces, K, BLOCK)
        probe.check_piece(case, report, length, each, pieces, BLOCK)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    read=PIECES,
    hint="a piece weighs exp(lse): weigh the parts, add the weights, divide once",
)
def test_merge(answers, probe):
    """Merge: the pieces of each head become one output."""
    needs("torch", "triton")
    for H, pieces, K, N in ((1, 1, 2, 1), (1, 2, 2, 2), (3, 4, 2, 4), (2, 8, 16, 8)):
        probe.check(f"merge: {H=}, {pieces=}, {K=}, {N=}", answers.probe.merge(H, pieces, K, N))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_merge",
    read=PIECES,
    hint="subtract the largest lse before exp; mask what is not there, and what has seen nothing",
)
def test_merge_extremes(answers, probe):
    """Merge: pieces that are not there or saw nothing, an lse of 1000, and nothing loaded twice."""
    needs("torch", "triton")
    for H, pieces, K, N, loud, blank in (
        (1, 1, 2, 2, 0.0, []),
        (2, 3, 2, 4, 0.0, []),
        (1, 2, 2, 2, 0.0, [(0, 1)]),
        (2, 2, 2, 2, 0.0, [(1, 0), (1, 1)]),
        (2, 3, 4, 4, 1000.0, [(0, 0)]),
        (2, 3, 4, 4, -1000.0, [(0, 0)]),
        (2, 3, 4, 4, -1e5, [(0, 0), (0, 1)]),
    ):
        case = f"merge: {H=}, {pieces=}, {K=}, {N=}, lse near {loud:g}, seen nothing: {blank}"
        report = answers.probe.merge(H, pieces, K, N, loud, blank)
        probe.check(case, report)
        probe.check_merge(case, report, blank)
