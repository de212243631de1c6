"""The visible tests: 15 of the 20 points. The cases come smallest first."""

import importlib.util

import pytest

PAIRS, BLOCKS, SEES = "What a window sees", "From pairs to blocks", "The idea: pay for squares"
EVEN, DESIGN = "When is it faster than dense attention?", "A design problem, worked"
CHOSEN, KERNEL = "After Longformer: lists that are chosen", "The kernel: along the lists"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- pairs and tiles ------------------------------------------------------------------------------

WINDOWS = [(1, 1), (3, 1), (4, 2), (5, 5), (6, 9), (12, 3)]  # T, w
MARKED = [(2, 1, [0]), (3, 1, [2]), (4, 1, [1]), (4, 2, [0, 2])]
MARKED += [(6, 2, [0, 5]), (9, 2, [3, 4]), (12, 3, [5, 10])]
TILES = [(1, 1), (2, 2), (3, 2), (2, 5), (4, 1)]  # rows, columns
MANY, BILLION = list(range(0, 10_000_000, 10_000)), 1_000_000_000
LONG = [  # T, w, global tokens, rows, columns, and what comes
    ((131_072, 1024, [0, 1, 2, 3], 128, 64), (134_214_138, 19_375)),
    ((131_072, 128, [65_536], 64, 128), (16_899_905, 5_625)),
    ((10_000_000, 4096, [], 128, 192), (40_951_613_440, 1_770_471)),
    ((10_000_000, 1024, MANY, 128, 192), (20_236_930_747, 65_123_473)),
    ((BILLION, 300_000_002, [0, 1, 2], 65_536, 65_536), (255_000_003_649_999_990, 59_400_310)),
]


@pytest.mark.points(
    1,
    read=PAIRS,
    hint="first the window alone; then what a global column adds below it, a global row before it;"
    " what both have added counts once",
)
def test_tally_pairs(answers, probe):
    """Tally: pairs, without global tokens and with some anywhere."""
    for T, w, marked in (*((T, w, []) for T, w in WINDOWS), *MARKED):
        case = T, w, marked, 1, 1
        probe.check_tally(case, answers.tally(*case), probe.counted(case), parts=1)


@pytest.mark.points(
    1,
    after="test_tally_pairs",
    read=BLOCKS,
    hint="in a row of tiles the window's keys are those from the first query's first to the last"
    " query's own; a global key adds a tile where none is yet",
)
def test_tally_tiles(answers, probe):
    """Tally: tiles of any sides, which divide neither the window nor T."""
    for T, w, marked in (*((T, w, []) for T, w in WINDOWS), *MARKED):
        for rows, columns in TILES:
            case = T, w, marked, rows, columns
            probe.check_tally(case, answers.tally(*case), probe.counted(case))


@pytest.mark.points(
    1,
    seconds=20,
    after="test_tally_tiles",
    read=BLOCKS,
    hint="go along rows of tiles, not along pairs or tiles; and // keeps a number whole",
)
def test_tally_long(answers, probe):
    """Tally: up to a billion tokens, in 20 seconds, exactly."""
    for case, right in LONG:
        probe.check_tally(case, answers.tally(*case), right)


# --- who is heard ---------------------------------------------------------------------------------

ONE_HEAD = [  # T, layers, token, and who is heard
    (1, [[(0, 0, 1)]], 0, [0]),
    (3, [[(1, 0, 1)]], 2, [1, 2]),
    (5, [[(1, 0, 2)]], 3, [1, 3]),
    (6, [[(1, 0, 2)], [(1, 0, 2)]], 5, [1, 3, 5]),
    (9, [[(1, 0, 4)], [(1, 0, 1)]], 8, [3, 4, 7, 8]),
    (16, [[(2, 0, 1)], [(2, 0, 2)], [(2, 0, 4)]], 15, [*range(1, 16)]),
    (16, [[(2, 0, 3)], [(1, 0, 4)]], 14, [4, 7, 8, 10, 11, 14]),
    (20, [[(2, 0, 2)], [(2, 0, 2)], [(2, 0, 2)]], 19, [7, 9, 11, 13, 15, 17, 19]),
]
HEADS = [
    (3, [[(0, 1, 1)]], 0, [0, 1]),
    (4, [[(1, 0, 1), (0, 1, 2)]], 1, [0, 1, 3]),
    (4, [[(0, 2, 1)], [(1, 0, 2)]], 1, [1, 2, 3]),
    (5, [[(0, 1, 1)], [(2, 0, 2)]], 4, [*range(5)]),
    (6, [[(1, 1, 2)], [(0, 2, 1)]], 5, [3, 5]),
    (9, [[(1, 2, 2), (1, 0, 1)], [(0, 1, 3)]], 3, [*range(1, 9)]),
    (12, [[(2, 0, 2)], [(1, 0, 1), (1, 1, 4)]], 9, [1, 3, 4, 5, 6, 7, 8, 9]),
    (40, [[(2, 2, 1)], [(2, 2, 1), (2, 2, 5)], [(2, 2, 1), (1, 1, 9)]], 20, [*range(40)]),
]


@pytest.mark.points(
    1, read=PAIRS, hint="a step of d, x times: the keys at i - x d; from each of these on again"
)
def test_heard(answers, probe):
    """Heard: one head in a layer, causal, any dilations."""
    for *case, right in ONE_HEAD:
        probe.check_heard(case, answers.heard(*case), right)


@pytest.mark.points(
    1,
    after="test_heard",
    read=PAIRS,
    hint="begin at the last layer; what lies outside of the tokens hears nothing, and hands"
    " nothing on",
)
def test_heard_heads(answers, probe):
    """Heard: several heads in a layer, to both sides, and both ends of the text."""
    for *case, right in HEADS:
        probe.check_heard(case, answers.heard(*case), right)


# --- a hybrid -------------------------------------------------------------------------------------

SMALL = {"layers": 4, "heads": 2, "kv_heads": 1, "head": 4, "block": 4, "ratio": 1.0}
GIB, EVER = 2**30, 1e9  # bytes; seconds, more than any of these take
LLAMA = {"layers": 32, "heads": 32, "kv_heads": 8, "head": 128, "block": 128, "ratio": 1.5}
LARGE = {"layers": 48, "heads": 40, "kv_heads": 4, "head": 128, "block": 128, "ratio": 2.5}
REAL = [  # model, room, FLOP/s, chats, prompt, seconds
    (LLAMA, 40 * GIB, 460e12, [131072] * 8, 131072, 4),
    (LLAMA, 40 * GIB, 460e12, [131072] * 8, 131072, 5),
    (LLAMA, 40 * GIB, 460e12, [131072] * 8, 131072, 0.5),
    (LLAMA, 40 * GIB, 460e12, [2000, 9000, 40_000, 131072] * 6, 131072, 3),
    (LLAMA, 60 * GIB, 460e12, [8192] * 64, 8192, 0.026),
    (LLAMA, 50 * GIB, 460e12, [8192] * 64, 8192, 0.039),
    (LARGE, 20 * GIB, 200e12, [65536] * 4, 65536, 6),
    (LARGE, 6 * GIB, 200e12, [65536, 500, 700] * 2, 65536, 20),
    (LARGE, 100 * GIB, 460e12, [131072], 400_000, 30),
]


def check_hybrid(answers, probe, *case, parts=4):
    model, room, rate, chats, prompt, seconds = case
    shown = chats if len(chats) < 9 else f"{len(chats)} chats, {chats[:4]}… in turn"
    told = f"hybrid({model}, {room=}, {rate=:g}, chats={shown}, {prompt=}, {seconds=:.9g})"
    got = answers.hybrid(dict(model), room, rate, list(chats), prompt, seconds)
    probe.check_hybrid(told, case, got, parts)


@pytest.mark.points(
    1,
    read=DESIGN,
    hint="full layers, layers // p of them, keep all of every chat, windowed ones its last w, if it"
    " has as many, in each kv head; w is a block or more, p at least 2, and what just fits, fits",
)
def test_hybrid_room(answers, probe):
    """Hybrid: where memory decides, to the byte, and how wide a window may be."""
    for chats, prompt in (([8], 40), ([3, 40], 8), ([5], 6)):
        check_hybrid(answers, probe, SMALL, 10**6, 1e9, chats, prompt, EVER, parts=3)
    for layers, chats in ((2, [9]), (4, [9]), (4, [9, 3, 30]), (6, [40, 17])):
        model = SMALL | {"layers": layers}
        for p, w in ((2, 4), (2, 8), (layers, 4), (layers, 12)):
            room, _ = probe.told_design(model, 1e9, chats, 8, p, w)
            for one in (room - 1, room):
                check_hybrid(answers, probe, model, one, 1e9, chats, 8, EVER, parts=3)


@pytest.mark.points(
    1,
    after="test_hybrid_room",
    read=EVEN,
    hint="count whole squares, in each query head: the first rows are shorter, and a window's last"
    " key may lie in one more; a window that is slower than dense is run dense",
)
def test_hybrid_time(answers, probe):
    """Hybrid: where time decides, windows in their own kernel and in the dense one."""
    for ratio in (1.0, 1.5, 4.0):
        for layers, prompt in ((2, 9), (4, 30), (6, 64)):
            model = SMALL | {"layers": layers, "ratio": ratio}
            for p, w in ((2, 4), (2, 8), (layers, 8), (layers, 4)):
                _, took = probe.told_design(model, 1e9, [64], prompt, p, w)
                for seconds in (took * (1 + 1e-6), took * (1 - 1e-6)):
                    check_hybrid(answers, probe, model, 10**9, 1e9, [64], prompt, seconds)


@pytest.mark.points(
    1,
    after="test_hybrid_time",
    read=DESIGN,
    hint="full layers come first: try each p from 2 on, the widest window that does; only then"
    " the next p",
)
def test_hybrid_real(answers, probe):
    """Hybrid: the page's problem with a time, and other models and chats."""
    for case in REAL:
        check_hybrid(answers, probe, *case)


# --- keys outside ---------------------------------------------------------------------------------

GRADED = {"T": 512, "H": 4, "G": 2, "K": 8, "top": 4, "block": 16, "hot": (0,)}
ROOM = 768 * 1024


def ran_attend(answers, **case):
    """The case in words, and what was measured."""
    return "attend: " + ", ".join(f"{name}={x}" for name, x in case.items()), answers.probe.attend(
        **case
    )


def attended(T, H, G, K, top, block, **more):
    return {"T": T, "H": H, "G": G, "K": K, "top": top, "block": block} | more


ALL = [
    attended(1, 1, 1, 2, 1, 1),
    attended(2, 1, 1, 2, 2, 1),
    attended(3, 1, 1, 2, 2, 2),
    attended(4, 2, 1, 3, 2, 2),
    attended(5, 1, 1, 2, 3, 2, loud=300),
    attended(9, 4, 2, 2, 9, 3),
]
FEW = [
    attended(2, 1, 1, 2, 1, 1),
    attended(3, 1, 1, 2, 1, 1, empty=(1,)),
    attended(4, 1, 1, 2, 2, 2, barred=(1,)),
    attended(6, 1, 1, 2, 3, 1, spread=100),
    attended(6, 2, 1, 2, 2, 2, empty=(0, 3)),
    attended(11, 4, 2, 3, 2, 3, empty=(5,), barred=(0, 2)),
    attended(20, 6, 3, 4, 3, 3, hot=(1,)),
]


@pytest.mark.points(
    1,
    seconds=60,
    read=SEES,
    hint="a block's own queries see only a part of it; softmax goes over all of a query's blocks;"
    " query head h has kv head h // (H // G); topk takes at most min(top, N), for N blocks",
)
def test_attend(answers, probe):
    """Attend: every query chooses all blocks that there are."""
    needs("torch")
    for case in ALL:
        probe.check(*ran_attend(answers, **case))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_attend",
    read=CHOSEN,
    hint="hide what is later, then choose; who has nothing to choose has 0 and -inf",
)
def test_attend_few(answers, probe):
    """Attend: few blocks are chosen, some must not be, and some queries choose none."""
    needs("torch")
    for case in FEW:
        probe.check(*ran_attend(answers, **case))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_attend_few",
    read=CHOSEN,
    hint="keys outside: read a block, and take all queries that chose it",
)
def test_attend_reads(answers, probe):
    """Attend: each block that is chosen is read once, for all heads that share it."""
    needs("torch")
    for case in (*ALL, *FEW):
        probe.check_reads(*ran_attend(answers, **case))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_attend_reads",
    read=CHOSEN,
    hint="keep for each query a maximum, a sum and an output, and go on from block to block",
)
def test_attend_alive(answers, probe):
    """Attend: 512 tokens in 768 KiB."""
    needs("torch")
    probe.check_alive(*ran_attend(answers, **GRADED), ROOM)


# --- a kernel -------------------------------------------------------------------------------------


def ran_columns(answers, sizes, lists, loud=1):
    T, H, G, K, BLOCK = sizes
    case = f"columns: {T=}, {H=}, {G=}, {K=}, {BLOCK=}, {lists=}" + f", {loud=}" * (loud > 1)
    return case[:600], answers.probe.columns(T, H, G, K, BLOCK, lists, loud=loud)


WHOLE = [  # (T, H, G, K, BLOCK), and the queries of each block in each kv head
    ((1, 1, 1, 1, 16), [[[0]]]),
    ((16, 1, 1, 4, 16), [[[*range(16)]]]),
    ((40, 1, 1, 16, 16), [[[*range(40)], [39, 16, 20, 33, 17], [32, 39]]]),
]
LOUD = [((4, 1, 1, 2, 16), [[[*range(4)]]]), ((20, 1, 1, 4, 16), [[[*range(20)], [18, 16, 19]]])]
SHARED = [
    ((2, 2, 1, 2, 16), [[[0, 1]]]),
    ((20, 4, 2, 5, 16), [[[3, 19, 18], [17]], [[*range(20)], []]]),
    ((33, 2, 2, 16, 16), [[[], [*range(16, 33)], [32]], [[1, 20, 30], [], []]]),
]
EARLY = [
    ((20, 1, 1, 2, 16), [[[], [3, 18]]]),
    ((40, 4, 2, 5, 16), [[[0, 39], [2, 20, 15, 39], []], [[1], [0, 14, 33], [0, 14, 3, 39]]]),
]


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    read=KERNEL,
    hint="P = exp(S - lse) where a query sees the key, else 0; dS = P (dO V - delta). exp(S) alone,"
    " or of what a query does not see, may be more than a float32 holds",
)
def test_columns(answers, probe):
    """Kernel: dK and dV of one head, from queries in any order."""
    needs("torch", "triton")
    for sizes, lists in WHOLE:
        probe.check(*ran_columns(answers, sizes, lists))
    for sizes, lists in LOUD:
        probe.check(*ran_columns(answers, sizes, lists, loud=150))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_columns",
    read=KERNEL,
    hint="a kv head's gradients are sums over the heads that share it; a block in which nobody is"
    " interested has 0; a query that sees nothing has lse = -inf, and no weight",
)
def test_columns_shared(answers, probe):
    """Kernel: heads that share keys, empty lists, and queries that came too early."""
    needs("torch", "triton")
    for sizes, lists in (*SHARED, *EARLY):
        probe.check(*ran_columns(answers, sizes, lists))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_columns_shared",
    read=KERNEL,
    hint="keys and values before the loop over the list, gradients stored after it; a tile of the"
    " list once, and then all heads that share the keys",
)
def test_columns_loads(answers, probe):
    """Kernel: everything loaded once, and stored once."""
    needs("torch", "triton")
    for sizes, lists in (*WHOLE, *SHARED, *EARLY):
        probe.check_loads(*ran_columns(answers, sizes, lists), sizes, lists)
