"""The visible tests: 15 of the 20 points. The cases come smallest first."""

import importlib.util

import pytest

from weft.plan.hardware import CHIPS

DESIGN, SCAN = "A design problem, worked", "The scan, in parallel or not"
GATE, ROOT = "The idea: one number per channel", "Why these two lines"
LAYER, RING = "The layer, and its gates on several ranks", "The window and its ring"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- a window for a chip --------------------------------------------------------------------------

SMALL = {  # 3 layers, one of them with attention
    "params": 1000, "layers": 3, "every": 3, "kv_heads": 1, "head": 4, "width": 8, "taps": 4,
}  # fmt: skip
RECURRENTGEMMA = {
    "params": 2_680_000_000, "layers": 26, "every": 3, "kv_heads": 1, "head": 256,
    "width": 2560, "taps": 4,
}  # fmt: skip
LARGER = {
    "params": 8_500_000_000, "layers": 38, "every": 3, "kv_heads": 1, "head": 256,
    "width": 4096, "taps": 4,
}  # fmt: skip
SLOW = 1.0  # second: more than any of these take
MIXED = [512, 2000, 8192, 20_000]
REAL = [  # chip, model, chats, seconds
    ("h200", RECURRENTGEMMA, [8192] * 206, 2e-3),
    ("a100-80", RECURRENTGEMMA, [8192] * 32, 4e-3),
    ("h100", RECURRENTGEMMA, MIXED * 64, 5e-3),
    ("a100-80", LARGER, [8192] * 32, 5e-3),
    ("h100", RECURRENTGEMMA, [100_000] * 128, 50e-3),
    ("h200", LARGER, MIXED * 64, 7e-3),
    ("h200", LARGER, [32_000] * 512, SLOW),
]


def made(memory, bandwidth=1e9, rate=1e12):
    return {"memory": memory, "bandwidth": bandwidth, "rate": rate}


def real(name):
    chip = CHIPS[name]
    return made(int(chip.memory), chip.bandwidth, chip.rate("bf16"))


def check_widest(answers, probe, chip, model, lengths, seconds, told="", parts=3):
    """Fail unless the first so many of window, bytes and seconds are right."""
    case = told or f"widest({chip}, {model}, {lengths}, seconds={seconds:.9g})"
    got = answers.widest(chip, model, list(lengths), seconds)
    right = probe.most_window(chip, model, lengths, seconds)
    probe.check_widest(case, got, right, parts)


@pytest.mark.points(
    1, read=DESIGN, hint="a ring has all its slots, however short the chat; a tenth stays free"
)
def test_widest_memory(answers, probe):
    """Widest window: where memory decides, to the byte."""
    for model, lengths in ((SMALL, [300]), (SMALL, [300, 5, 129]), (dict(SMALL, layers=8), [999])):
        for window in (128, 256, 384):
            kept, _ = probe.told_window(made(0), model, lengths, window)
            params = model["params"]  # as many more as make tenths whole: then it just fits
            while (kept + 2 * params) % 9:
                params += 1
            least = (kept + 2 * params) // 9 * 10
            for memory in (least - 1, least):
                case = made(memory), model | {"params": params}, lengths, SLOW
                check_widest(answers, probe, *case, parts=2)
    check_widest(answers, probe, made(10**9), SMALL, [256], SLOW, parts=2)  # as long as the chat


@pytest.mark.points(
    1,
    after="test_widest_memory",
    read=DESIGN,
    hint="matmuls first: bytes once, or FLOPs for each chat; then what each chat reads and writes",
)
def test_widest_time(answers, probe):
    """Widest window: where the time of a step decides."""
    for rate in (1e12, 1e9):
        chip = made(10**9, rate=rate)
        for lengths in ([1000], [1000, 100, 600], [700] * 40):
            for window in (128, 384, 640):
                _, step = probe.told_window(chip, SMALL, lengths, window)
                for seconds in (step * (1 - 1e-6), step * (1 + 1e-6)):
                    check_widest(answers, probe, chip, SMALL, lengths, seconds)


@pytest.mark.points(
    1,
    after="test_widest_time",
    read=DESIGN,
    hint="first ask which bound each chip meets: its room, or its time",
)
def test_widest_real(answers, probe):
    """Widest window: RecurrentGemma 2B, and a model of 8.5 billion, on an A100, H100 and H200."""
    for name, model, lengths, seconds in REAL:
        told = f"widest on {name}, {model}, {len(lengths)} chats of {lengths[:4]}… tokens"
        told += f" in turn, {seconds=}"
        check_widest(answers, probe, real(name), model, lengths, seconds, told)


# --- packed documents -----------------------------------------------------------------------------

GRADED_PACKED = 512, 4, (0, 100, 101, 300), True  # T, D, where documents begin, whether it goes on


def ran_packed(answers, T, D, begins, carried, **more):
    """The case in words, and what was measured."""
    case = f"packed: {T=}, {D=}, documents begin at {list(begins)}"
    case += ", with a state" if carried else ""
    return case, answers.probe.packed(T, D, begins, carried, **more)


@pytest.mark.points(
    1,
    seconds=60,
    read=ROOT,
    hint="go on from the state if there is one; a document's first token enters unscaled; where a"
    " is all but 1, 1 - a * a has no digits left",
)
def test_packed(answers, probe):
    """Packed: one document, begun here or before, at decays of all sizes."""
    needs("torch")
    for T in (1, 2, 5, 33):
        for carried in (False, True):
            probe.check(*ran_packed(answers, T, 8, (), carried))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_packed",
    read=ROOT,
    hint="at a document's first token a is 0 and the root 1, whatever came before",
)
def test_packed_documents(answers, probe):
    """Packed: documents do not see each other, and each one's first token enters unscaled."""
    needs("torch")
    for T, begins in ((2, (1,)), (3, (0,)), (7, (0, 2, 3)), (40, (5, 17, 18, 39))):
        for carried in (False, True):
            probe.check(*ran_packed(answers, T, 8, begins, carried))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_packed_documents",
    read=SCAN,
    hint="steps that double take log T rounds; or chunks of about the root of T",
)
def test_packed_operations(answers, probe):
    """Packed: 512 tokens in at most 350 operations and 128 KiB."""
    needs("torch")
    case, report = ran_packed(answers, *GRADED_PACKED)
    probe.check_room(case, report, 350, 128 * 1024)


# --- a ring ---------------------------------------------------------------------------------------

GRADED_EXTEND = [320], 16, 4, 4, 0.25, 40  # pieces, W, K, V, slope, first


def ran_extend(answers, pieces, W, K, V, slope, first=0, **more):
    case = f"extend: tokens {first} on in pieces of {pieces}, {W=}, {K=}, {V=}, {slope=}"
    return case, answers.probe.extend(pieces, W, K, V, slope, first, **more)


@pytest.mark.points(
    1,
    seconds=60,
    read=RING,
    hint="a query sees W keys, itself among them; unused slots hold NaN, and 0 times NaN is NaN",
)
def test_extend(answers, probe):
    """Extend: a prompt, shorter and longer than the window, and the ring that it leaves."""
    needs("torch")
    for T, W in ((1, 1), (1, 3), (2, 1), (3, 3), (4, 3), (11, 4)):
        for slope in (0.0, 0.5):
            probe.check(*ran_extend(answers, [T], W, 4, 3, slope))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_extend",
    read=RING,
    hint="which position a slot has depends on `first`; queries need what their piece writes over",
)
def test_extend_pieces(answers, probe):
    """Extend: piece after piece, then token by token."""
    needs("torch")
    for pieces, W in (([2, 1], 2), ([1, 1, 1, 1], 2), ([3, 2, 4], 3), ([9, 1, 1, 1, 2, 8, 1], 4)):
        for slope in (0.0, 0.5):
            probe.check(*ran_extend(answers, pieces, W, 4, 3, slope))


@pytest.mark.points(
    1,
    seconds=60,
    after="test_extend_pieces",
    read=RING,
    hint="W queries at a time see fewer than 2 W keys: take them together, and no more of them",
)
def test_extend_room(answers, probe):
    """Extend: 320 tokens under a window of 16 in at most 1,200 operations and 384 KiB."""
    needs("torch")
    case, report = ran_extend(answers, *GRADED_EXTEND)
    probe.check_room(case, report, 1200, 384 * 1024)


# --- ranks ----------------------------------------------------------------------------------------

RUNS = {}  # the later stages read what the first one ran
SPLIT = [  # tokens of each rank, where documents begin, taps, D
    ([3], [0, 1], 2, 1),
    ([4, 3], [0], 4, 2),
    ([4, 3], [0, 4], 3, 2),
    ([5, 1, 4], [0], 4, 3),
    ([3, 0, 2, 1], [0, 2], 4, 2),
    ([6, 2, 1, 7], [0, 5, 8, 11], 4, 3),
]


def split(answers, dice):
    """What every rank measured, case by case."""
    needs("torch")
    if "split" not in RUNS:
        RUNS["split"] = answers.probe.convolve(SPLIT, dice.randrange(1 << 30))
    return zip(SPLIT, RUNS["split"], strict=True)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=90,
    read=LAYER,
    hint="the rows in front of a rank's own may lie on several ranks, and stop at the document's",
)
def test_convolve(answers, probe, dice):
    """Convolve: on real ranks, each row is that of the whole sequence."""
    for case, ranks in split(answers, dice):
        probe.check_convolved(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=90,
    after="test_convolve",
    read=LAYER,
    hint="taps - 1 rows at most, none of another document, and none for a rank without tokens",
)
def test_convolve_bytes(answers, probe, dice):
    """Convolve: each rank is sent the rows that its tokens see, and no others."""
    for case, ranks in split(answers, dice):
        probe.check_halo(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=90,
    after="test_convolve_bytes",
    read=LAYER,
    hint="all that a rank sends is its own x: send it before you receive, to whoever needs it",
)
def test_convolve_rounds(answers, probe, dice):
    """Convolve: no message waits for another one."""
    for case, ranks in split(answers, dice):
        probe.check_rounds(case, ranks)


# --- a kernel -------------------------------------------------------------------------------------


def ran_back(answers, B, T, D, BLOCK, begins=(), **more):
    case = f"scan_back: {B=}, {T=}, {D=}, {BLOCK=}, documents begin at {list(begins)}"
    return case, answers.probe.scan_back(B, T, D, BLOCK, begins, **more)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    read=SCAN,
    hint="from the last token on: into h_t flow dh_t, and what flows into h_{t+1}, times a_{t+1};"
    " what flows into log a is what flows into a, times a",
)
def test_scan_back(answers, probe):
    """Kernel: the gradients of one document, with what flows in at both ends."""
    needs("torch", "triton")
    for sizes in ((1, 1, 1, 1), (1, 2, 2, 2), (1, 5, 4, 4), (2, 4, 4, 2)):
        probe.check(*ran_back(answers, *sizes))


PACKED = [  # B, T, D, BLOCK, and where documents begin
    ((1, 1, 2, 2), ((0, 0),)),
    ((1, 2, 2, 2), ((0, 1),)),
    ((2, 5, 4, 2), ((0, 0), (1, 2), (1, 3))),
]


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_scan_back",
    read=SCAN,
    hint="nothing flows back out of a document; its first a has no gradient, and du still has",
)
def test_scan_back_documents(answers, probe):
    """Kernel: nothing flows from one document into the one before it."""
    needs("torch", "triton")
    for sizes, begins in PACKED:
        probe.check(*ran_back(answers, *sizes, begins))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_scan_back_documents",
    read=SCAN,
    hint="mask the channels beyond D; h of a token is loaded when the next one needs it, once",
)
def test_scan_back_loads(answers, probe):
    """Kernel: at any width, everything loaded once and stored once."""
    needs("torch", "triton")
    for sizes, begins in (*PACKED, ((2, 3, 5, 4), ((1, 1),)), ((1, 7, 3, 8), ())):
        probe.check_loads(*ran_back(answers, *sizes, begins), sizes, begins)
