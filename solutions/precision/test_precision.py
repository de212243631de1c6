"""The visible tests: 15 of the 20 points. The cases come smallest first."""

import importlib.util
from math import inf

import pytest

from weft.plan.hardware import CHIPS
from weft.plan.shape import SHAPES

RECIPES, BLOCKS = "The recipes of 2026", "FP8: a scale for each block"
VANISH, COARSE = "Failure two: updates that vanish", "Where bf16 is not enough"
WHICH, BYTES, HOLDS = "When to use which", "Where the bytes are", "What a format holds"
ROUND, PASS, SCALE = "Rounding", "One pass over memory", "The loss scale"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- a delayed scale ------------------------------------------------------------------------------

E4M3, E5M2 = (448.0, 2.0**-9), (57344.0, 2.0**-16)
SCALES = [  # steps, format, length, margin
    ([[1.0], [1.0]], E4M3, 1, 0),
    ([[3.0], [3.5], [4.0], [-7.0, 2.0], [1.0]], E4M3, 1, 0),
    ([[-500.0], [1.0], [2.0], [3.0], [1.0]], E4M3, 2, 0),
    ([[1.0, 2.0], [0.001], [900.0], [1e-5], [3.0], [7.0]], E5M2, 3, 2),
]
FATES = [
    ([[448.0], [449.0, -500.0], [500.0, 1.0]], E4M3, 1, 0),
    ([[2.0**-10, 0.0], [2.0**-10, 2.0**-21]], E4M3, 1, 0),
    ([[2.0**-10 * 1.01, -(2.0**-11)], [1.0], [-(2.0**-18), 9.0]], E4M3, 2, 1),
    ([[1.0], [8.0], [8.0], [1.0], [2.0**-15], [2.0**-20]], E5M2, 3, 0),
]
ODD = [
    ([[0.0], [1.0], [0.0], [0.0], [2.0]], E4M3, 1, 0),
    ([[1.0], [inf, 1.0], [2.0], [4.0], [8.0], [1.0]], E4M3, 2, 0),
    ([[], [3.0, -inf], [], [0.0], [5.0], [], [-0.0]], E4M3, 2, 3),
    ([[2.0], [-inf], [1.0]], E5M2, 9, 0),
]


def check_delayed(answers, probe, steps, format, length, margin, fates=True):
    got = answers.delayed([list(one) for one in steps], *format, length, margin)
    probe.check_delayed(steps, *format, length, margin, got, fates)


@pytest.mark.points(
    1,
    read=RECIPES,
    hint="a step's scale comes from the largest magnitudes of the steps before it, not its own",
)
def test_delayed(answers, probe):
    """Delayed: the scale of each step."""
    for case in SCALES:
        check_delayed(answers, probe, *case, fates=False)


@pytest.mark.points(
    1, after="test_delayed", read=ROUND, hint="compare magnitudes, after they are scaled"
)
def test_delayed_fates(answers, probe):
    """Delayed: how many numbers are clipped, and how many become 0."""
    for case in FATES:
        check_delayed(answers, probe, *case)


@pytest.mark.points(
    1, after="test_delayed", read=RECIPES, hint="what a history says is 0 or infinite here"
)
def test_delayed_odd(answers, probe):
    """Delayed: zeros, infinities, and steps without numbers."""
    for case in ODD:
        check_delayed(answers, probe, *case, fates=False)


# --- formats --------------------------------------------------------------------------------------

TINY = {"layers": 2, "linear": [(4, 12), (4, 4), (4, 16), (8, 4)], "others": 40, "between": 20}
STEP = {"sequences": 12, "length": 5, "weight": 0.02, "update": 1e-5, "steps": 10000}
STEP |= {"beta2": 0.95, "noise": 0.05, "stale": 0.1}
TRAINS = [  # what differs from STEP; each memory is in between what two choices need
    {},
    {"update": 1e-4},
    {"update": 2.0**-14},
    {"weight": 2.0**-6, "update": 2.0**-14},
    {"weight": 2.0**-6, "update": 2.0**-14 * 1.01},
    {"update": 3e-4, "steps": 100000},
    {"update": 2e-7, "noise": 1e-4},
    {"update": 1e-10, "noise": 1e-9},
    {"update": 1e-13, "noise": 1e-9},
    {"steps": 500},
    {"beta2": 0.99},
    {"beta2": 0.99, "stale": 0.4},
    {"beta2": 0.9999999},
    {"update": 7e-5},
    {"update": 0.4 * 2.0**-13, "steps": 100, "noise": 0.034},
]


def made(memory=1e9, bandwidth=1e6, bf16=1e6, fp8=2e6):
    return {"memory": memory, "bandwidth": bandwidth, "bf16": bf16, "fp8": fp8}


def shape(name):
    """A model's layers; between are residual, norms' results, q, k, v, gate and up."""
    s = SHAPES[name]
    D, F, kv = s.width, s.hidden, 2 * s.kv_heads * s.width // s.heads
    linear = [(D, D + kv), (D, D), (D, 2 * F), (F, D)]
    others = s.params - s.layers * sum(k * n for k, n in linear)
    between = 2 * D + D + kv + 2 * F
    return {"layers": s.layers, "linear": linear, "others": others, "between": between}


def chip(name):
    """At 70 % of its peak."""
    one = CHIPS[name]
    rates = {dtype: 0.7 * one.rate(dtype) for dtype in ("bf16", "fp8")}
    return {"memory": one.memory, "bandwidth": one.bandwidth} | rates


TUNING = {"sequences": 64, "length": 4096, "weight": 0.02, "update": 1e-5, "steps": 10000}
TUNING |= {"beta2": 0.95, "noise": 0.05, "stale": 0.1}
REAL = [  # chip, model, what differs from TUNING
    ("h200", "llama3-8b", {}),
    ("h200", "llama3-8b", {"beta2": 0.999}),
    ("h200", "llama3-8b", {"steps": 500}),
    ("h200", "llama3-8b", {"sequences": 512, "length": 8192}),
    ("h200", "llama3-8b", {"sequences": 257, "length": 8192}),
    ("h200", "llama3-8b", {"sequences": 258, "length": 8192}),
    ("h200", "llama3-8b", {"sequences": 4, "length": 64}),
    ("h100", "llama3-8b", {}),
    ("h100", "llama3-8b", {"steps": 500}),
    ("h100", "llama3-8b", {"update": 1e-4, "length": 2048}),
    ("b200", "llama3-8b", {"beta2": 0.999}),
    ("b200", "llama3-8b", {"update": 1e-8, "noise": 1e-4}),
    ("h100", "llama2-7b", {"steps": 500, "length": 512}),
    ("b200", "llama2-7b", {"beta2": 0.99, "stale": 0.5}),
]


def check_formats(answers, probe, told, chip, model, run, fastest=True):
    got = answers.formats(dict(chip), model | {"linear": list(model["linear"])}, dict(run))
    probe.check_formats(told, chip, model, run, got, fastest)


def edges(probe, chip, model, run):
    """Memories in which nothing fits, the least just does and just does not, and more."""
    sizes = sorted({one[1] for one in probe.all_formats(chip, model, run)})
    for size in sizes[:: max(1, len(sizes) // 4)]:
        for memory in (10 * size // 9 - 1, 10 * size // 9 + 1):
            yield chip | {"memory": memory}, model, run


@pytest.mark.points(
    1,
    seconds=30,
    read=VANISH,
    hint="a spacing is 2**-fraction bits of the power of two at or below the weight; what trains"
    " and what fits are asked of each choice",
)
def test_formats(answers, probe):
    """Formats: whether a choice trains, and fits; its bytes."""
    for more in TRAINS:
        for case in edges(probe, made(), TINY, STEP | more):
            told = f"formats({case[0]}, TINY, STEP | {more})"
            check_formats(answers, probe, told, *case, fastest=False)


@pytest.mark.points(
    1,
    after="test_formats",
    seconds=30,
    read=PASS,
    hint="count for one part and one layer: matmuls, numbers cast; then parts, and the optimizer",
)
def test_formats_time(answers, probe):
    """Formats: what is soonest, where matmuls, casts or the optimizer take most of the time."""
    for rates in ((1e6, 2e6), (1e5, 2e5), (1e8, 1.5e8), (3e6, 6e6)):
        one = made(bf16=rates[0], fp8=rates[1])
        for more in ({}, {"steps": 500}, {"beta2": 0.99}, {"update": 1e-8, "noise": 0.001}):
            for case in edges(probe, one, TINY, STEP | more):
                told = f"formats({case[0]}, TINY, STEP | {more})"
                check_formats(answers, probe, told, *case)


@pytest.mark.points(
    1,
    after="test_formats_time",
    seconds=30,
    read=WHICH,
    hint="fewer bytes of states leave room for activations, and fewer of these for larger parts",
)
def test_formats_real(answers, probe):
    """Formats: Llama 2 7B and Llama 3 8B on one H100, H200 or B200."""
    for name, model, more in REAL:
        told = f"formats(chip({name!r}), shape({model!r}), TUNING | {more})"
        check_formats(answers, probe, told, chip(name), shape(model), TUNING | more)


# --- a linear layer -------------------------------------------------------------------------------

WHOLE = [(1, 1, 1, 1), (2, 2, 2, 2), (4, 2, 6, 2), (8, 12, 4, 4)]  # M, N, K, block
RAGGED = [(1, 1, 2, 2), (3, 2, 5, 2), (5, 7, 3, 4), (9, 10, 13, 4)]
OF = {
    "y": "this matmul sums over K: so x has blocks along K, and w tiles",
    "dx": "this matmul sums over N: so dy has blocks along N; a tile of w is a tile here as well",
    "dw": "this matmul sums over M, the tokens: so both dy and x have blocks along M",
}

EXACT = "a logarithm in float32 rounds to the next whole number: torch.frexp is exact"


def ran_linear(answers, sizes, **how):
    M, N, K, block = sizes
    case = f"linear: {M=}, {N=}, {K=}, {block=}"
    case += ", numbers of very different sizes" if how.get("wild") else ""
    case += ", blocks of zeros" if how.get("zeros") else ""
    case += ", largest numbers just beyond 448 of a scale" if how.get("edge") else ""
    return case, answers.probe.linear(*sizes, **how)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=30,
    read=BLOCKS,
    hint="a matmul's factors have blocks along the dim that it sums over",
)
def test_linear(answers, probe):
    """Linear: y, dx and dw, with whole blocks, of numbers of one size and of many."""
    needs("torch")
    for wild in (False, True):
        for sizes in WHOLE:
            probe.check(*ran_linear(answers, sizes, wild=wild), OF)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=30,
    after="test_linear",
    read=BLOCKS,
    hint="zeros behind the last number change no maximum; 448 / 0 is infinite",
)
def test_linear_ragged(answers, probe):
    """Linear: last blocks with fewer numbers, blocks of zeros, scales to the last bit."""
    needs("torch")
    for zeros in (False, True):
        for sizes in RAGGED:
            probe.check(*ran_linear(answers, sizes, wild=True, zeros=zeros))
    for sizes in ((2, 2, 2, 2), (5, 7, 6, 4)):
        probe.check(*ran_linear(answers, sizes, edge=True), dict.fromkeys(OF, EXACT))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=30,
    after="test_linear_ragged",
    read=RECIPES,
    hint="two copies of x and of dy, as their blocks lie two ways; a tile serves both ways",
)
def test_linear_casts(answers, probe):
    """Linear: no number cast more often than needed."""
    needs("torch")
    for sizes in ((2, 2, 2, 2), (8, 12, 4, 4), (9, 10, 13, 4)):
        probe.check_casts(*ran_linear(answers, sizes), *sizes)


# --- MXFP4 ----------------------------------------------------------------------------------------

SIZES = [(1, 2, 2, 1, 2), (2, 4, 4, 2, 4), (4, 16, 16, 2, 8), (8, 32, 32, 4, 16)]
UNEVEN = [(1, 1, 1, 1, 2), (3, 5, 7, 2, 4), (5, 19, 24, 4, 8)]  # rows, n, stride, ROWS, BLOCK
FOUR = {
    "scales": "the smallest power of two of which 6 reach the block's largest number: its exponent,"
    " and whether its fraction is beyond that of 6",
    "codes": "divide by the scale, then count the middles that a magnitude has passed; a middle"
    " itself goes to the even count",
}


ALONE = "a program takes its own block, and leaves the others to theirs"


def ran_mxfp4(answers, sizes, kind="plain", seed=0, alone=False):
    rows, n, stride, ROWS, BLOCK = sizes
    case = f"mxfp4: {rows=}, {n=}, {stride=}, {ROWS=}, {BLOCK=}, {kind} numbers"
    case += f", where only programs (0, j) run and other rows stay {0x99}" if alone else ""
    return case, answers.probe.mxfp4(*sizes, kind, seed, alone)


@pytest.mark.points(1, tier="chip", seconds=60, read=BLOCKS, hint="take one block by hand")
def test_mxfp4(answers, probe):
    """MXFP4: scales and codes of whole blocks, ties among them."""
    needs("torch", "triton")
    for kind in ("plain", "ties"):
        for sizes in SIZES:
            probe.check(*ran_mxfp4(answers, sizes, kind), FOUR)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_mxfp4",
    read=HOLDS,
    hint="a code ends at 0; infinity and NaN have all bits of the exponent; -0.0 has a sign",
)
def test_mxfp4_ends(answers, probe):
    """MXFP4: zeros, the ends of bf16's range, infinities and NaN."""
    needs("torch", "triton")
    for kind in ("ends", "odd"):
        for seed in range(3):
            probe.check(*ran_mxfp4(answers, (8, 8, 8, 4, 4), kind, seed))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_mxfp4",
    read=BLOCKS,
    hint="the last block may have one number, and its byte belongs to the row; mask all else",
)
def test_mxfp4_moved(answers, probe):
    """MXFP4: rows that do not divide; each number read once, each byte written once."""
    needs("torch", "triton")
    for sizes in (*SIZES, *UNEVEN):
        probe.check_mxfp4(*ran_mxfp4(answers, sizes), *sizes[:3])
    alone = ran_mxfp4(answers, (5, 19, 24, 4, 8), alone=True)
    probe.check(*alone, {"scales": ALONE, "codes": ALONE})


# --- AdamW ----------------------------------------------------------------------------------------

STATE = {"w": "put the bits together as whole numbers: rest may be below 0"}


def ran_adamw(answers, n, BLOCK, **how):
    case = f"adamw: {n=}, {BLOCK=}" + "".join(f", {key}={value}" for key, value in how.items())
    return case, answers.probe.adamw(n, BLOCK, **how)


@pytest.mark.points(
    1, tier="chip", seconds=60, read=PASS, hint="compare with the three lines of the docstring"
)
def test_adamw(answers, probe):
    """AdamW: weights and rests, means and squares, clipped and decayed."""
    needs("torch", "triton")
    for how in ({"total": 0.25}, {}, {"decay": 0.5, "limit": 0.5}, {"total": 0.0}):
        for n, BLOCK in ((2, 2), (64, 16)):
            probe.check(*ran_adamw(answers, n, BLOCK, **how), STATE)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_adamw",
    read=BYTES,
    hint="where lr is 0 no bit of w may change: mind what lies in the middle of two",
)
def test_adamw_exact(answers, probe):
    """AdamW: the master, bit by bit."""
    needs("torch", "triton")
    for seed in range(3):
        probe.check(*ran_adamw(answers, 32, 16, lr=0.0, ties=True, seed=seed))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_adamw",
    read=PASS,
    hint="mask every load and every store, by n and by total",
)
def test_adamw_moved(answers, probe):
    """AdamW: a last program with fewer weights; each number moved once, or none at all."""
    needs("torch", "triton")
    for n, BLOCK in ((4, 4), (1, 4), (37, 16)):
        for total in (4.0, inf, float("nan")):
            case, report = ran_adamw(answers, n, BLOCK, total=total)
            probe.check_adamw(case, report, -(-n // BLOCK), total == 4.0)
