"""The visible tests: 16 of the 20 points. Each exercise first has to be correct, then to stay
within its bytes, its operations or its rounds. The cases come smallest first."""

import importlib.util

import pytest

from weft.grade import WrongAnswer, at_most, expect

SERVE, CACHE = "A design problem, worked", "Decoding: a state beside a cache"
FORMS, GATE = "Three forms of one recurrence", "Forgetting: a gate"
DELTA, RANKS = "Replacing: the delta rule", "Across ranks: a state instead of keys and values"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- a hybrid on a server -------------------------------------------------------------------------

GB = 10**9
ARGUMENTS = (
    "layers",
    "room",
    "step",
    "H",
    "K",
    "V",
    "G",
    "D",
    "sequences",
    "prompt",
    "own",
    "drafts",
)
SHAPES = [
    (1, 8, 8, 1, 1, 1, 1, 1, 1, 1, 0, 0),
    (1, 7, 8, 1, 1, 1, 1, 1, 1, 1, 0, 0),
    (2, 10**6, 10**6, 1, 2, 1, 1, 2, 3, 5, 2, 0),
    (4, 700, 1100, 1, 2, 1, 1, 2, 3, 9, 2, 0),
    (4, 5000, 1248, 1, 2, 1, 1, 2, 3, 9, 2, 1),
    (3, 900, 5000, 2, 4, 3, 1, 1, 2, 6, 1, 2),
    (4, 300, 300, 2, 8, 8, 1, 1, 1, 3, 1, 0),
    (48, 46 * GB, 100 * GB, 32, 128, 128, 2, 256, 64, 30000, 20000, 0),
    (48, 46 * GB, 100 * GB, 32, 128, 128, 2, 256, 64, 30000, 20000, 3),
    (48, 46 * GB, 50 * GB, 32, 128, 128, 2, 256, 64, 30000, 20000, 0),
    (48, 37275992064, 88648187904, 32, 128, 128, 2, 256, 64, 30000, 20000, 0),
    (48, 46 * GB, 24 * GB, 32, 128, 128, 2, 256, 64, 30000, 20000, 0),
    (48, 46 * GB, 20 * GB, 32, 128, 128, 2, 256, 64, 30000, 20000, 3),
    (48, 46 * GB, 100 * GB, 32, 128, 128, 2, 256, 512, 900, 100, 0),
    (61, 400 * GB, 900 * GB, 64, 128, 256, 8, 128, 200, 10**5, 30000, 2),
    (27, 30 * GB, 40 * GB, 32, 128, 128, 1, 512, 3000, 1, 1500, 0),
]


def served(answers, probe, shape):
    """The case's name, the answer, what is kept and moved with its `every`, and with every one."""
    named = ", ".join(f"{name}={value}" for name, value in zip(ARGUMENTS, shape, strict=True))
    case, got = f"hybrid({named})", answers.hybrid(*shape)
    layers, room, step, *of = shape
    found = probe.served(layers, *of)
    fit = {every: both for every, both in found.items() if both[0] <= room and both[1] <= step}
    if got is None:
        return case, None, None, fit
    whole = isinstance(got, list | tuple) and len(got) == 3 and all(type(x) is int for x in got)
    if not whole or got[0] not in found:
        wanted = f"(every, kept, moved) with every from 1 to {layers + 1}, or None"
        raise WrongAnswer(f"{case}: expected {wanted}, got {got!r}", "")
    return case, got, found[got[0]], fit


@pytest.mark.points(
    1,
    read=SERVE,
    hint="the prompt's cache and the copy at its end once; all else for each sequence",
)
def test_hybrid_kept(answers, probe):
    """Hybrid: the bytes kept, with the layers of full attention that it has chosen."""
    for shape in SHAPES:
        case, got, both, _ = served(answers, probe, shape)
        if got:
            expect(f"{case}: bytes kept with every={got[0]}", got[1], both[0])


@pytest.mark.points(
    1,
    after="test_hybrid_kept",
    read=CACHE,
    hint="a cache is read whole and gets a few tokens; a state is read, and as large when written",
)
def test_hybrid_moved(answers, probe):
    """Hybrid: the bytes that a step moves, with the layers of full attention that it has chosen."""
    for shape in SHAPES:
        case, got, both, _ = served(answers, probe, shape)
        if got:
            expect(f"{case}: bytes moved with every={got[0]}", got[2], both[1])


@pytest.mark.points(
    1,
    after="test_hybrid_moved",
    read=SERVE,
    hint="try each `every` from 1 on, with both limits; exactly full will do",
)
def test_hybrid(answers, probe):
    """Hybrid: the most layers of full attention that keep within the room and within the step."""
    for shape in SHAPES:
        case, got, _, fit = served(answers, probe, shape)
        expect(f"{case}: every", got and got[0], min(fit, default=None))


# --- packed documents in chunks -------------------------------------------------------------------

DOCUMENTS = [  # lengths, K, V, C
    ([1], 1, 1, 1),
    ([1, 1], 2, 1, 2),
    ([3], 2, 2, 2),
    ([2, 3], 2, 3, 4),
    ([4, 1], 2, 3, 4),
    ([4, 4], 2, 2, 4),
    ([1, 2, 1, 5], 3, 2, 4),
    ([9, 1, 1, 6], 3, 4, 5),
    ([3, 14, 2, 1, 9], 4, 3, 8),
]
GRADED = ([3, 1, 2, 5, 1, 4] * 24 + [128], 16, 16, 32)
MOST = {"packed": 56, "kda": 80}  # operations for each chunk
MIB = 1 << 20
RAN = {}


def graded(answers, probe, function, case):
    """As `ran`, for what is measured once: the later test reads what the first one ran."""
    if function not in RAN:
        RAN[function] = ran(answers, function, case)
    probe.check(*RAN[function])
    return RAN[function]


def ran(answers, function, case, strong=False):
    """The case in words, and what the probe measured."""
    names = {"packed": ("lengths", "K", "V", "C"), "kda": ("T", "K", "V", "C")}[function]
    shown = ", ".join(f"{name}={of}" for name, of in zip(names, case, strict=True))
    if len(shown) > 150:
        many = f"{sum(case[0])} tokens in {len(case[0])} documents"
        shown = f"{many}, {shown.partition('], ')[2]}"
    gates = ", gates that close" * strong
    return f"{function}: {shown}{gates}", getattr(answers.probe, function)(*case, strong)


@pytest.mark.points(
    1,
    seconds=60,
    read=FORMS,
    hint="only queries of the document that runs on into a chunk read the state before it, and only"
    " two tokens of one document have a score",
)
def test_packed(answers, probe):
    """Packed: outputs and the last state, wherever documents end."""
    needs("torch")
    after = "what the last document has written stays, each token's faded by the gates after it"
    for case in DOCUMENTS:
        probe.check(*ran(answers, "packed", case), S=after)


@pytest.mark.points(
    1,
    seconds=60,
    after="test_packed",
    read=GATE,
    hint="exp of a difference that is at most 0, never a product of two factors or a quotient",
)
def test_packed_decay(answers, probe):
    """Packed: gates of any strength, which leave nothing and say nothing of what comes later."""
    needs("torch")
    for case in (([3], 1, 1, 2), ([2, 3], 2, 3, 4), ([9, 1, 1, 6], 3, 4, 5), ([40], 4, 4, 16)):
        probe.check(*ran(answers, "packed", case, strong=True))


@pytest.mark.points(
    0.5,
    seconds=60,
    after="test_packed_decay",
    read=FORMS,
    hint="one chunk's scores and one state at a time; what is done with them can go",
)
def test_packed_bytes(answers, probe):
    """Packed: within 1 MiB, where a table of all scores takes 2 and a state for each token 1."""
    needs("torch")
    case, report = graded(answers, probe, "packed", GRADED)
    at_most(f"{case}: bytes alive", report["alive"], MIB)


@pytest.mark.points(
    1,
    seconds=60,
    after="test_packed_bytes",
    read=FORMS,
    hint="all documents of a chunk in the same matmuls, with a mask that tells them apart",
)
def test_packed_steps(answers, probe):
    """Packed: as few operations for many short documents as for one."""
    needs("torch")
    case, report = graded(answers, probe, "packed", GRADED)
    chunks = sum(GRADED[0]) // GRADED[3]
    at_most(f"{case}: operations of torch", report["operations"], MOST["packed"] * chunks)


# --- the delta rule with a decay for each channel -------------------------------------------------

CHANNELS = [  # T, K, V, C
    (1, 1, 1, 1),
    (2, 2, 1, 2),
    (3, 2, 2, 2),
    (5, 3, 2, 4),
    (13, 4, 3, 5),
    (19, 5, 7, 8),
]
GRADED_KDA = (512, 16, 16, 32)


@pytest.mark.points(
    1,
    seconds=60,
    read=DELTA,
    hint="(1 + A) u = beta (v - S^T of the faded key); A has the fade inside its dot product",
)
def test_kda(answers, probe):
    """KDA: the outputs, for any sizes and moderate gates."""
    needs("torch")
    for case in CHANNELS:
        probe.check(*ran(answers, "kda", case))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_kda",
    read=GATE,
    hint="mask b_i - b_j before exp, channel by channel: one factor of a split overflows",
)
def test_kda_decay(answers, probe):
    """KDA: gates of any strength, in some channels and not in others."""
    needs("torch")
    for case in ((2, 1, 1, 2), (4, 2, 3, 4), (13, 4, 3, 5), (40, 4, 4, 16)):
        probe.check(*ran(answers, "kda", case, strong=True))


@pytest.mark.points(
    0.5,
    seconds=60,
    after="test_kda_decay",
    read=DELTA,
    hint="e^(b_i - b_j) of one chunk at a time, and one state",
)
def test_kda_bytes(answers, probe):
    """KDA: within 1 MiB, where e^(b_i - b_j) of all chunks takes 2 and a state for each token 1."""
    needs("torch")
    case, report = graded(answers, probe, "kda", GRADED_KDA)
    at_most(f"{case}: bytes alive", report["alive"], MIB)


@pytest.mark.points(
    1,
    seconds=60,
    after="test_kda_bytes",
    read=DELTA,
    hint="solve the whole triangular system of a chunk in one operation, and not row by row",
)
def test_kda_steps(answers, probe):
    """KDA: no chunk goes token by token."""
    needs("torch")
    case, report = graded(answers, probe, "kda", GRADED_KDA)
    T, _, _, C = GRADED_KDA
    at_most(f"{case}: operations of torch", report["operations"], MOST["kda"] * T // C)


# --- over ranks, both ways ------------------------------------------------------------------------

PIECES = [  # the tokens of each rank, K, V
    ([2], 1, 2),
    ([1, 1], 1, 1),
    ([2, 1], 2, 3),
    ([1, 3, 2], 3, 2),
    ([0, 2, 1], 2, 2),
    ([2, 0, 0, 3], 2, 2),
    ([5, 1, 4, 2], 4, 3),
]
RUNS = []  # what the ranks measured: the later tests read what the first one ran


def pieces(answers, dice):
    """Each case with what every rank measured."""
    needs("torch")
    if not RUNS:
        RUNS.extend(answers.probe.on_ranks(PIECES, dice.randrange(1 << 30)))
    return zip(PIECES, RUNS, strict=True)


def on_ranks(points, hint, **more):
    """The marks that these tests share."""
    more = {"tier": "processes", "seconds": 60, "read": RANKS, "hint": hint} | more
    return pytest.mark.points(points, **more)


@on_ranks(1, "what goes on is a rank's own state, and what its gates leave of the one that came")
def test_both_ways(answers, probe, dice):
    """Both ways: each rank's outputs as of the whole sequence, to 1e-10; pieces may be empty."""
    for case, ranks in pieces(answers, dice):
        probe.check_result(case, ranks)


@on_ranks(1, "one state to the right and one to the left, [K, V] each", after="test_both_ways")
def test_both_ways_bytes(answers, probe, dice):
    """Both ways: a rank sends a state in either direction, and nothing that grows with tokens."""
    for case, ranks in pieces(answers, dice):
        probe.check_sent(case, ranks)


@on_ranks(
    1,
    "send your own before you wait for the other direction's, and wait first for what is first",
    after="test_both_ways_bytes",
)
def test_both_ways_rounds(answers, probe, dice):
    """Both ways: done after n - 1 rounds, as both directions are under way at once."""
    for case, ranks in pieces(answers, dice):
        probe.check_rounds(case, ranks)


# --- a kernel -------------------------------------------------------------------------------------


def decoded(answers, case, **more):
    """As `ran`, for the kernel."""
    settled, count, N, K, V, TILE_V = case
    told = f"replay: {settled=}, {count=}, {N=}, {K=}, {V=}, {TILE_V=}"
    return told, answers.probe.replay(*case, **more)


def chip(points, hint, **more):
    """The marks that these tests share."""
    return pytest.mark.points(points, tier="chip", seconds=60, hint=hint, **more)


@chip(1, "fade, ask the faded state, write the difference, then read", read=DELTA)
def test_replay(answers, probe):
    """Kernel: one sequence, its outputs for drafts, and the state after what is settled."""
    needs("torch", "triton")
    between = "store S after the settled tokens, and then let the drafts change it in the program"
    for settled, count in ((0, 1), (1, 1), (1, 2), (0, 3), (2, 4), (4, 4)):
        probe.check(*decoded(answers, ([settled], [count], count, 4, 4, 4)), S=between)


SERVED = [  # settled, count, N, K, V, TILE_V
    ([0, 1], [1, 1], 1, 2, 2, 2),
    ([1, 0], [2, 1], 3, 4, 4, 2),
    ([0, 2, 1], [0, 2, 4], 5, 3, 5, 2),
    ([3, 0], [3, 5], 5, 5, 3, 8),
]


@chip(
    1,
    "each sequence has its own counts; mask the rows from K on and the columns from V on",
    after="test_replay",
    read=CACHE,
)
def test_replay_batch(answers, probe):
    """Kernel: several sequences with counts of their own, and widths that tiles do not divide."""
    needs("torch", "triton")
    for case in SERVED:
        probe.check(*decoded(answers, case))


@chip(
    1,
    "hold the tile of S in the program from the first token to the last; store it between the two",
    after="test_replay_batch",
    read=CACHE,
)
def test_replay_loads(answers, probe):
    """Kernel: the state is loaded once and stored once, and of tokens those that are there."""
    needs("torch", "triton")
    for case in SERVED:
        settled, count, N, _, V, TILE_V = case
        told, report = decoded(answers, case)
        probe.check(told, report)
        probe.check_moved(told, report, settled, count, N, -(-V // TILE_V))
