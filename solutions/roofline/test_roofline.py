"""The visible tests: 15 of the 20 points. The cases come smallest first."""

import importlib.util
import random
from math import inf

import pytest

from weft.plan import gpu
from weft.plan.hardware import CHIPS
from weft.plan.roofline.levels import L2

LEVELS, IDEA = "A roof for each level: L2 and the network", "The idea: two jobs, two speeds"
DO, FUSING, PASSES = "What to do about each wall", "Why fusing helps", "Three passes, two, one"


def needs(*modules):
    """Skip, and say so, where something is not installed."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {' and '.join(modules)}")


# --- the order of tiles ---------------------------------------------------------------------------

PLAIN = [  # rows, columns, steps, a, b, cache, wave, group
    (1, 1, 1, 3, 5, 8, 1, 1),
    (2, 2, 1, 3, 5, 8, 1, 1),
    (2, 2, 1, 3, 5, 8, 1, 2),
    (2, 3, 1, 3, 5, 13, 1, 1),
    (3, 2, 1, 3, 5, 11, 1, 3),
    (3, 3, 1, 1, 1, 4, 1, 2),
    (5, 4, 1, 2, 3, 9, 1, 2),
    (7, 5, 1, 3, 1, 12, 1, 4),
]
WAVES = [
    (1, 2, 2, 3, 5, 8, 2, 1),
    (2, 2, 2, 1, 1, 2, 2, 1),
    (2, 2, 3, 1, 1, 3, 4, 2),
    (3, 4, 2, 2, 3, 12, 5, 2),
    (5, 4, 4, 3, 2, 40, 6, 3),
    (6, 7, 3, 1, 2, 25, 8, 4),
]
CHOSEN = [  # the same, with groups to choose from
    (4, 4, 1, 10, 10, 40, 1, [1, 2, 4]),
    (4, 4, 1, 10, 10, 60, 1, [1, 2, 4]),
    (4, 4, 2, 10, 10, 200, 4, [4, 2, 1]),
    (6, 6, 2, 1, 1, 14, 7, [1, 2, 3, 4, 5, 6]),
    (8, 8, 2, 2, 1, 20, 9, [8, 1, 4, 2]),
]
WALKED = [  # chip, m, n, k, tile_m, tile_n: a group may have 1, 2, 4, 8, … rows
    ("a100-80", 4096, 4096, 14336, 128, 128),
    ("h100", 4096, 6144, 4096, 128, 256),
    ("h100", 8192, 8192, 8192, 128, 256),
]
STEPS = 4


def check_walk(answers, probe, *sizes):
    *sizes, groups = sizes
    groups = groups if isinstance(groups, list) else [groups]
    case = dict(zip(("rows", "columns", "steps", "a", "b", "cache", "wave"), sizes, strict=True))
    probe.check_walk(case, groups, answers.walk(*case.values(), list(groups)))


def walked(name, m, n, k, tile_m, tile_n):
    """A matmul in 2 bytes on a chip, its contracted dim in a few steps."""
    chip = CHIPS[name]
    groups = [2**i for i in range((m // tile_m).bit_length())]
    slices = 2 * tile_m * k // STEPS, 2 * tile_n * k // STEPS
    return m // tile_m, n // tile_n, STEPS, *slices, chip.l2, chip.sms, groups


@pytest.mark.points(
    1,
    read=LEVELS,
    hint="write down the programs in order; a slice that is loaded again is the newest again",
)
def test_walk_single(answers, probe):
    """Walk: one program after another, groups of any height, one step."""
    for case in PLAIN:
        check_walk(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_walk_single",
    read=LEVELS,
    hint="all programs of a wave do a step before any does the next; the cache is never emptied",
)
def test_walk_waves(answers, probe):
    """Walk: waves of programs, several steps."""
    for case in WAVES:
        check_walk(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_walk_waves",
    read=DO,
    hint="bytes neither fall nor rise steadily with the height of a group: compare all",
)
def test_walk_groups(answers, probe):
    """Walk: the best of several groups, at last for matmuls on an A100 and an H100."""
    for case in (*CHOSEN, *(walked(*one) for one in WALKED)):
        check_walk(answers, probe, *case)


# --- three walls and a queue ----------------------------------------------------------------------

DEEP = 1024
QUEUES = [  # kernels, launch, rate, bandwidth, start
    ([], 4, 1, 1, 2),
    ([(1, 5, False)], 4, 1, 1, 2),
    ([(6, 5, False)], 4, 1, 1, 2),
    ([(1, 1, False)] * 3, 1, 1, 1, 3),
    ([(1, 9, False), (1, 1, False), (5, 3, False)], 4, 1, 1, 2),
    ([(2, 2, False), (3, 3, False), (16, 4, False)], 1, 4, 1, 3),
    ([(0, 20, False), *[(1, 1, False)] * 6, (30, 0, False)], 3, 2, 2, 1),
]
READ = [
    ([(1, 9, True)], 4, 1, 1, 2),
    ([(1, 9, True), (1, 1, False), (5, 3, False)], 4, 1, 1, 2),
    ([(9, 1, False), (9, 1, True), (1, 1, True), (7, 2, False), (1, 1, False)], 2, 1, 1, 1),
    ([(0, 1, False), (0, 1, True), (0, 12, False), (0, 12, False)], 6, 1, 1, 2),
]
SHALLOW = [  # the same, with a depth of 1, 2 and 3
    [(1, 9, False), (1, 1, False), (5, 3, False)],
    [(0, 20, False), *[(1, 1, False)] * 5, (3, 9, False)],
    [(30, 1, False), (0, 1, False), (0, 1, True), (0, 30, False), *[(0, 1, False)] * 4],
]
START = 2e-6


def token(rows, context, layers=4):
    """Kernels of a few layers of Llama 3 8B for a token of each of so many sequences."""
    D, F, heads, kv, K = 4096, 14336, 32, 8, 128
    matmul = lambda n, k: (2 * rows * n * k, 2 * (rows * k + k * n + rows * n), False)  # noqa: E731
    norm = 4 * rows * D, 6 * rows * D, False
    cached = rows * context * kv * K
    attention = 4 * rows * context * heads * K, 4 * cached, False
    layer = [norm, matmul((heads + 2 * kv) * K, D), attention, matmul(D, D), norm]
    layer += [matmul(2 * F, D), (5 * rows * F, 6 * rows * F, False), matmul(D, F)]
    chosen = rows * 128256, 2 * rows * 128256, True  # by .item()
    return [*layer * layers, matmul(128256, D), chosen] * 2


def check_stalls(answers, probe, kernels, launch, depth, rate, bandwidth, start, told=""):
    got = answers.stalls(list(kernels), launch, depth, rate, bandwidth, start)
    probe.check_stalls(kernels, launch, depth, rate, bandwidth, start, got, told)


@pytest.mark.points(
    1,
    read=IDEA,
    hint="a launch that is over before the kernel in front has ended costs nothing; time in which"
    " nothing runs is overhead",
)
def test_stalls(answers, probe):
    """Stalls: the host runs ahead, and nothing holds it."""
    for kernels, launch, *rest in QUEUES:
        check_stalls(answers, probe, kernels, launch, DEEP, *rest)


@pytest.mark.points(
    1,
    after="test_stalls",
    read=DO,
    hint="after a result is read the host is no longer ahead: the next launch begins there",
)
def test_stalls_read(answers, probe):
    """Stalls: the host reads results, at last a token's after Llama 3 8B on an H100."""
    for kernels, launch, *rest in READ:
        check_stalls(answers, probe, kernels, launch, DEEP, *rest)
    chip = CHIPS["h100"]
    for rows, context in ((1, 1024), (64, 4096)):
        told = f"two tokens of {rows} sequences, {context} in the cache, four layers of Llama 3 8B"
        rest = gpu.LAUNCH, DEEP, chip.rate("bf16"), chip.bandwidth, START
        check_stalls(answers, probe, token(rows, context), *rest, told)


@pytest.mark.points(
    1,
    after="test_stalls_read",
    read=IDEA,
    hint="a long kernel hides only as many launches as the queue takes: the next one waits until a"
    " kernel begins",
)
def test_stalls_queue(answers, probe):
    """Stalls: a queue that holds few."""
    for depth in (1, 2, 3):
        for kernels in SHALLOW:
            check_stalls(answers, probe, kernels, 2, depth, 1, 1, 1)


# --- a tile ---------------------------------------------------------------------------------------

TOY = {"sms": 4, "shared": 65536, "rate": 1e6, "l2": 1e5, "memory": 1e5, "start": 0.0}
TIMED = [  # m, n, k, chip
    (16, 16, 64, TOY),
    (16, 16, 64, TOY | {"start": 1.0}),
    (100, 40, 64, TOY),
    (100, 40, 640, TOY),
    (33, 33, 65, TOY | {"sms": 3}),
    (33, 33, 6400, TOY | {"memory": 1e6}),
    (50, 70, 4096, TOY | {"sms": 64, "memory": 1e6, "l2": 1e6}),
    (50, 70, 4096, TOY | {"sms": 64, "memory": 1e6, "l2": 1e6, "start": 0.5}),
]
ONE_SLICE = [
    *((m, n, 64, TOY) for m, n in ((16, 16), (17, 64), (100, 40), (300, 500), (129, 1000))),
    *((m, n, 50, TOY | {"sms": 7, "rate": 1e7}) for m, n in ((16, 500), (200, 200), (700, 90))),
    *((256, 512, 64, TOY | {"shared": shared}) for shared in (16384, 147456, 147455, 232448)),
    *((1024, 1024, 64, TOY | {"shared": 262144, "sms": sms, "l2": 1e4}) for sms in (1, 5, 32)),
]
WEIGHTS = {  # of Llama 3 8B: n, k
    "q, k and v": (6144, 4096),
    "output": (4096, 4096),
    "gate and up": (28672, 4096),
    "down": (4096, 14336),
}
TOKENS = 1, 16, 64, 128, 256, 512, 1024, 4096
RESERVED = 1024  # bytes of shared memory that each program's start takes


def real(name):
    chip = CHIPS[name]
    return {
        "sms": chip.sms,
        "shared": chip.shared - RESERVED,
        "rate": chip.rate("bf16"),
        "l2": L2[name],
        "memory": chip.bandwidth,
        "start": 3e-6,
    }


def check_tiling(answers, probe, m, n, k, chip, best=True):
    probe.check_tiling(m, n, k, chip, answers.tiling(m, n, k, dict(chip)), best)


@pytest.mark.points(
    1,
    read=LEVELS,
    hint="a wave takes as long as one program; the slowest of three sets the pace; parts are"
    " written, and read again by a second kernel",
)
def test_tiling_time(answers, probe):
    """Tiling: a tile and a split that fit, and the seconds that they take."""
    for case in TIMED:
        check_tiling(answers, probe, *case, best=False)


@pytest.mark.points(
    1,
    after="test_tiling_time",
    read=LEVELS,
    hint="larger tiles load less and leave more multiprocessors idle, in the last wave above all",
)
def test_tiling(answers, probe):
    """Tiling: the soonest, where the contracted dim is a single slice."""
    for case in ONE_SLICE:
        check_tiling(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_tiling",
    read=DO,
    hint="few tiles leave most of a chip idle, unless several programs share each of them",
)
def test_tiling_real(answers, probe):
    """Tiling: matmuls of Llama 3 8B on an A100, an H100 and an H200, from one row to thousands."""
    for rows in TOKENS:
        for n, k in WEIGHTS.values():
            for name in ("a100-80", "h100", "h200"):
                check_tiling(answers, probe, rows, n, k, real(name))


# --- entropy on a tile memory ---------------------------------------------------------------------

CAPACITY = 4000
FITTING = [(1, 1), (1, 2), (1, 7), (3, 5), (3, 12), (2, 250)]  # rows, n
LONGER = [(1, 251), (2, 999), (4, 999), (1, 2501)]
FROM, RISE = (0, 1900, -1900, 0), (0, 0.125, -0.125, 4)  # of the first rows, every 8 numbers
MASKED = [(1, 3, 1), (2, 7, 6), (1, 900, 400), (2, 1001, 1000), (3, 2000, 700)]  # and how many
RAN = {}  # what was measured, by case: the later stages read what the first one ran


def numbers(rows, n, masked=0, seed=0):
    """Rows of numbers that float32 holds exactly, some far from 0, some rising, one steeply."""
    dice = random.Random(f"{rows} {n} {seed}")
    made = [
        [FROM[i] + RISE[i] * (j // 8) + dice.randint(-32, 32) / 8 for j in range(n)]
        for i in range(rows)
    ]
    for i, row in enumerate(made):
        places = range(masked) if i % 2 == 0 else dice.sample(range(n), masked)
        for j in places:
            row[j] = -inf
    return made


def ran_entropy(answers, probe, rows, n, masked=0):
    """What was moved, once what came out is right: the case and the measurement."""
    case = f"entropy of {rows} x {n} in {CAPACITY} bytes"
    case += f", {masked} of each row -inf" if masked else ""
    x = numbers(rows, n, masked)
    if case not in RAN:
        RAN[case] = answers.probe.entropy(x, CAPACITY)
    probe.check_entropy(case, x, RAN[case])
    return case, RAN[case]


@pytest.mark.points(
    1,
    seconds=60,
    read=PASSES,
    hint="relative to the largest number no exponential overflows; when a part brings a larger one,"
    " everything that was summed relative to the old one changes",
)
def test_entropy(answers, probe):
    """Entropy: rows that fit and rows that do not, far from 0 and steep ones too."""
    needs("torch")
    for case in (*FITTING, *LONGER):
        ran_entropy(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_entropy",
    seconds=60,
    read=PASSES,
    hint="0 times -inf is NaN, and so is -inf minus -inf: where does each come up?",
)
def test_entropy_masked(answers, probe):
    """Entropy: rows with -inf, whole tiles of it too."""
    needs("torch")
    for case in MASKED:
        ran_entropy(answers, probe, *case)


@pytest.mark.points(
    1,
    after="test_entropy_masked",
    seconds=60,
    read=PASSES,
    hint="two sums of a row are enough, and both can be mended when a larger number comes: write"
    " down what a larger maximum does to each term",
)
def test_entropy_once(answers, probe):
    """Entropy: each number of any row read once."""
    needs("torch")
    for case in (*FITTING, *LONGER, *MASKED):
        probe.check_moved(*ran_entropy(answers, probe, *case), {"x": 1}, {"out": 1})


# --- a kernel -------------------------------------------------------------------------------------

WIDE = [(1, 4, 4), (1, 3, 4), (2, 9, 4), (3, 21, 8)]  # rows, F, BLOCK
KINDS = [("float32", 3.0), ("float32", 1000.0), ("float16", 3.0), ("float16", 1000.0)]
MANY = (4, 300, 64), ("float16", 3.0)  # for what shows in few numbers


def gated(rows, F, steep, seed=0):
    """Gates up to `steep`, ups, and slopes, that float16 holds exactly."""
    dice = random.Random(f"{rows} {F} {steep} {seed}")
    eighths = lambda most: dice.randint(-8 * most, 8 * most) / 8  # noqa: E731
    gates = lambda: eighths(3) if steep <= 3 else float(dice.choice([-1, 1]) * int(steep))  # noqa: E731
    h = [[gates() for _ in range(F)] + [eighths(4) for _ in range(F)] for _ in range(rows)]
    return h, [[eighths(4) for _ in range(F)] for _ in range(rows)]


def ran_swiglu(answers, probe, rows, F, BLOCK, dtype, steep):
    """What was moved, once what came out is right: the case and the measurement."""
    case = f"swiglu_backward: {rows} rows, {F=}, {BLOCK=}, {dtype}, gates up to {steep:g}"
    h, dy = gated(rows, F, steep)
    if case not in RAN:
        RAN[case] = answers.probe.swiglu_backward(h, dy, dtype, BLOCK)
    probe.check_gradients(case, h, dy, dtype, RAN[case])
    return case, RAN[case]


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    read=FUSING,
    hint="the slope of g sigmoid(g) has two terms; a row of h has 2 F numbers; the last program of"
    " a row is rarely full",
)
def test_swiglu_backward(answers, probe):
    """Kernel: right in float32 for any F, and it touches nothing else."""
    needs("torch", "triton")
    for case in WIDE:
        ran_swiglu(answers, probe, *case, *KINDS[0])


@pytest.mark.points(
    1,
    tier="chip",
    after="test_swiglu_backward",
    seconds=60,
    read=FUSING,
    hint="compute in float32, and ask of each exp what a gate of 1000 or -1000 makes of it",
)
def test_swiglu_backward_narrow(answers, probe):
    """Kernel: right in float16, and for gates of 1000."""
    needs("torch", "triton")
    for kind in KINDS[1:]:
        for case in WIDE:
            ran_swiglu(answers, probe, *case, *kind)
    case, kind = MANY
    ran_swiglu(answers, probe, *case, *kind)


@pytest.mark.points(
    1,
    tier="chip",
    after="test_swiglu_backward_narrow",
    seconds=60,
    read=FUSING,
    hint="what a kernel has loaded it still has: use it again, load it once",
)
def test_swiglu_backward_once(answers, probe):
    """Kernel: each element of h and dy loaded once, each of h and y stored once, by its program."""
    needs("torch", "triton")
    for kind in KINDS:
        for case in WIDE:
            ran = ran_swiglu(answers, probe, *case, *kind)
            probe.check_moved(*ran, {"h": 1, "dy": 1}, {"h": 1, "y": 1})
            probe.check_own(*ran)
