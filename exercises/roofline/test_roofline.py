"""The visible tests: 16 of the 20 points. Each exercise first has to be correct, then to move no
more bytes than it must. The cases come smallest first."""

import importlib.util
import random
from math import exp

import pytest

from weft.grade import WrongAnswer, expect
from weft.plan import roofline
from weft.plan.hardware import CHIPS
from weft.plan.roofline import ElementwiseOp

COUNTING, TOKENS = "Counting FLOPs and bytes", "How many rows a weight needs"
FUSING, LAYER = "Why fusing helps", "Which wall does a layer meet?"
PASSES, ACT = "Three passes, two, one", "Why fusing helps"


def needs(*modules):
    """Skip, and say so, where something is not installed."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {' and '.join(modules)}")


# --- five operations ------------------------------------------------------------------------------

COUNTED = {
    "vector_add": (roofline.vector_add, [(1,), (1000,), (12345,)]),
    "matvec": (roofline.matvec, [(1, 1), (3, 5), (4096, 1024)]),
    "matmul": (roofline.matmul, [(1, 1, 1), (2, 3, 5), (512, 4096, 1024)]),
    "layer_norm": (roofline.layer_norm, [(1, 1), (3, 7), (2048, 5120)]),
    "attention": (
        lambda T, S, K, size: roofline.attention(T, S, 1, K, size),
        [(1, 1, 1), (2, 3, 5), (512, 2048, 64)],
    ),
}


MEANT = {  # what an operation's bytes are most often without
    "vector_add": "two operands are read and a result is written; bytes, not elements",
    "matvec": "the matrix, the vector and the result, each element once",
    "matmul": "both operands and the result, each element once, however often it is used",
    "layer_norm": "each row in and out, and a weight and a bias once for all rows",
    "attention": "scores and probabilities are each written by one kernel and read by the next",
}


def check_work(answers, field):
    for name, (count, cases) in COUNTED.items():
        for dims in cases:
            for size in (4, 2):
                case = f"work({name!r}, {dims}, size={size})"
                got = answers.work(name, dims, size)
                if not isinstance(got, list | tuple) or len(got) != 2:
                    raise WrongAnswer(f"{case}: expected (flops, bytes), got {got!r}", "")
                expected, hint = getattr(count(*dims, size=size), field), None
                if field == "bytes":
                    hint = MEANT[name]
                expect(f"{case}: {field}", got[field == "bytes"], expected, hint=hint)


@pytest.mark.points(1, read=COUNTING, hint="a product and a sum are two FLOPs")
def test_work_flops(answers):
    """Five operations: the FLOPs of each."""
    check_work(answers, "flops")


@pytest.mark.points(
    1,
    read=COUNTING,
    hint="bytes, not elements; operands and result; and what passes from one kernel to the next "
    "is written once and read once",
)
def test_work_bytes(answers):
    """Five operations: the bytes of each."""
    check_work(answers, "bytes")


# --- the smallest batch ---------------------------------------------------------------------------

H100 = 989_400_000_000_000, 3_350_000_000_000
WEIGHTS = [  # n, k, size, rate, bandwidth
    (3, 3, 1, 2, 1),
    (4, 4, 2, 2, 1),
    (4, 8, 2, 2, 1),
    (10, 15, 1, 3, 1),
    (7, 1000, 4, 5, 3),
    (4096, 4096, 2, *H100),
    (16384, 4096, 2, *H100),
    (300, 100_000, 2, *H100),
    (1000, 1000, 1, 999_999_000, 1_000_000),  # half a billion rows
]
NARROW = [
    (1, 1, 1, 1, 1),
    (2, 2, 2, 2, 1),
    (1, 4096, 2, *H100),
    (512, 512, 2, *H100),
    (300, 10_000, 2, *H100),
]


def bound_by_compute(m, n, k, size, rate, bandwidth):
    """Whether a matmul is, in whole numbers."""
    work = roofline.matmul(m, n, k, size)
    return work.flops * bandwidth >= work.bytes * rate


def check_batch(case, got, n, k, size, rate, bandwidth):
    """Fail unless `got` is the least m that is bound by compute, or None where there is none."""
    if 2 * n * k * bandwidth <= rate * size * (n + k):
        expect(case, got, None, hint="let m grow without end: what is left of the intensity?")
    elif not isinstance(got, int) or got < 1:
        raise AssertionError(f"{case}: expected a whole number of at least 1, got {got!r}")
    elif not bound_by_compute(got, n, k, size, rate, bandwidth):
        text = f"{case}: got {got}, which is still bound by memory"
        raise WrongAnswer(text, "the activations, m of k and m of n, have to be moved too")
    elif got > 1 and bound_by_compute(got - 1, n, k, size, rate, bandwidth):
        text = f"{case}: got {got}, where {got - 1} would do"
        raise WrongAnswer(text, "exactly on the ridge will do; divide whole numbers, not floats")


@pytest.mark.points(
    1, read=TOKENS, hint="the activations have to be moved too, and exactly on the ridge will do"
)
def test_smallest_batch(answers):
    """The least m at which m rows times a weight are bound by compute."""
    for n, k, size, rate, bandwidth in WEIGHTS:
        case = f"smallest_batch({n=}, {k=}, {size=}, {rate=}, {bandwidth=})"
        got = answers.smallest_batch(n, k, size, rate, bandwidth)
        check_batch(case, got, n, k, size, rate, bandwidth)


@pytest.mark.points(
    1,
    after="test_smallest_batch",
    read=TOKENS,
    hint="let m grow without end: what is left of the intensity?",
)
def test_smallest_batch_none(answers):
    """None where the weight is so narrow that no number of rows is enough."""
    for n, k, size, rate, bandwidth in NARROW:
        case = f"smallest_batch({n=}, {k=}, {size=}, {rate=}, {bandwidth=})"
        got = answers.smallest_batch(n, k, size, rate, bandwidth)
        check_batch(case, got, n, k, size, rate, bandwidth)


# --- a chain of steps -----------------------------------------------------------------------------

CHAINS = [  # steps, sizes, keep
    ([("y", ["x"])], {"x": 8, "y": 8}, ["y"]),
    ([("y", ["x", "x"])], {"x": 8, "y": 8}, ["y"]),
    ([("a", ["x"]), ("b", ["x"]), ("y", ["a", "b"])], dict.fromkeys("xaby", 8), ["y"]),
    ([("y", ["x", "bias"]), ("z", ["y", "y"])], {"x": 8, "bias": 2, "y": 8, "z": 8}, ["z"]),
    (
        [("a", ["x", "bias"]), ("b", ["a", "mask"]), ("y", ["b", "residual"])],
        {"x": 8, "bias": 4, "a": 8, "mask": 1, "b": 8, "residual": 8, "y": 8},
        ["y"],
    ),
    (  # gelu, x (1 + tanh(b (x + a x^3))) / 2
        [
            ("cube", ["x", "x", "x"]), ("scaled", ["cube"]), ("sum", ["x", "scaled"]),
            ("tanh", ["sum"]), ("plus", ["tanh"]), ("y", ["x", "plus"]),
        ],
        dict.fromkeys(["x", "cube", "scaled", "sum", "tanh", "plus", "y"], 100),
        ["tanh", "y"],
    ),
]  # fmt: skip


def least_bytes(steps, cuts, sizes, keep):
    """What each tensor costs, one after another: who makes it, and which kernels ask for it."""
    kernel_of = {i: sum(cut <= i for cut in cuts) for i in range(len(steps))}
    makers = {result: kernel_of[i] for i, (result, _) in enumerate(steps)}
    moved = 0
    for name, size in sizes.items():
        asking = {kernel_of[i] for i, (_, operands) in enumerate(steps) if name in operands}
        elsewhere = asking - {makers.get(name)}
        writes = name in makers and bool(elsewhere or name in keep)
        moved += size * (len(elsewhere) + writes)
    return moved


def check_chain(answers, steps, cuts, sizes, keep):
    case = f"chain_bytes({steps}, cuts={cuts}, sizes={sizes}, keep={keep})"
    got = answers.chain_bytes(steps, cuts, sizes, keep)
    expect(case, got, least_bytes(steps, cuts, sizes, keep))


@pytest.mark.points(1, read=FUSING, hint="x * x needs x once")
def test_chain_bytes_unfused(answers):
    """A chain of steps, each a kernel of its own."""
    for steps, sizes, keep in CHAINS:
        check_chain(answers, steps, list(range(1, len(steps))), sizes, keep)


@pytest.mark.points(
    1,
    after="test_chain_bytes_unfused",
    read=FUSING,
    hint="a kernel writes what a later kernel needs, or somebody after the chain, and no more",
)
def test_chain_bytes_fused(answers):
    """The same in one kernel, and cut in every other way."""
    for steps, sizes, keep in CHAINS:
        for chosen in range(2 ** (len(steps) - 1)):
            cuts = [i for i in range(1, len(steps)) if chosen >> (i - 1) & 1]
            check_chain(answers, steps, cuts, sizes, keep)


# --- a whole layer --------------------------------------------------------------------------------

LAYERS = [  # rows, D, F, size, chip, dtype
    (1, 4, 8, 4, "v100", "fp32"),
    (1, 4096, 11008, 2, "h100", "bf16"),
    (256, 4096, 11008, 2, "h100", "bf16"),
    (256, 4096, 11008, 2, "a100-80", "bf16"),
    (2048, 8192, 28672, 2, "h100", "bf16"),
    (8192, 768, 2048, 4, "a100-40", "fp32"),
    (4096, 1024, 100, 1, "b200", "fp8"),
]
SILU = [ElementwiseOp("silu", 4), ElementwiseOp("product", 1, others=1)]


def parts_of(rows, D, F, size):
    """The five kernels of a gated MLP."""
    return {
        "norm": roofline.layer_norm(rows, D, size),
        "up": roofline.matmul(rows, 2 * F, D, size),
        "swiglu": roofline.fused(rows * F, size, SILU),
        "down": roofline.matmul(rows, D, F, size),
        "add": roofline.vector_add(rows * D, size),
    }


def mlp(answers, rows, D, F, size, chip, dtype):
    """The case, what the answer says about it, and what is right."""
    chip = CHIPS[chip]
    rate, bandwidth = chip.rate(dtype), chip.bandwidth
    case = f"mlp({rows=}, {D=}, {F=}, {size=}, {rate=:g}, {bandwidth=:g})"
    got = answers.mlp(rows, D, F, size, rate, bandwidth)
    if not isinstance(got, list | tuple) or len(got) != 2 or not isinstance(got[0], dict):
        raise WrongAnswer(f"{case}: expected (walls, seconds), got {got!r}", "")
    return case, got, parts_of(rows, D, F, size), (chip, dtype)


@pytest.mark.points(
    1, read=LAYER, hint="each kernel has its own FLOPs and bytes, and meets a wall of its own"
)
def test_mlp_walls(answers):
    """A gated MLP: the wall that each of its five kernels meets."""
    for layer in LAYERS:
        case, (walls, _), parts, roof = mlp(answers, *layer)
        expect(f"{case}: names", sorted(walls), sorted(parts), hint="")
        for name, work in parts.items():
            expect(f"{case}: wall of {name}", walls[name], roofline.wall(work, *roof))


@pytest.mark.points(
    1,
    after="test_mlp_walls",
    read=LAYER,
    hint="within a kernel the longer of two times counts, and kernels wait for each other",
)
def test_mlp_time(answers):
    """A gated MLP: the least time of its kernels one after another."""
    for layer in LAYERS:
        case, (_, got), parts, roof = mlp(answers, *layer)
        expected = sum(roofline.seconds(work, *roof) for work in parts.values())
        expect(f"{case}: seconds", got, expected, within=1e-9 * expected)


# --- softmax on a tile memory ---------------------------------------------------------------------

SHORT = [(1, 1), (1, 7), (3, 5), (4, 64), (2, 250)]  # rows, n: four rows fit in 4000 bytes
LONG = [(1, 251), (2, 999), (1, 1024), (3, 2501)]
CAPACITY = 4000
RAN = {}  # what was measured, by case: the later stages read what the first one ran


def numbers(rows, n, seed=0, shift=0.0):
    """Rows of small numbers that float16 holds exactly, each row a step above the last."""
    dice = random.Random(f"{rows} {n} {seed}")
    return [[dice.randint(-64, 64) / 8 + shift * i for _ in range(n)] for i in range(rows)]


def softmax_of(row):
    most = max(row)
    weights = [exp(x - most) for x in row]
    total = sum(weights)
    return [weight / total for weight in weights]


def check_softmax(answers, rows, n):
    """What was moved, once what came out is right: the case and the measurement."""
    case = f"softmax of {rows} x {n} float32 in {CAPACITY} bytes"
    x = numbers(rows, n, shift=500.0)
    if case not in RAN:
        RAN[case] = answers.probe.softmax(x, CAPACITY)
    for i, row in enumerate(x):
        for j, expected in enumerate(softmax_of(row)):
            within = 1e-6 + 2e-4 * expected  # the log of a row's sum is rounded, where one takes it
            expect(f"{case}: out[{i}, {j}]", RAN[case]["out"][i][j], expected, within=within)
    return case, RAN[case]


@pytest.mark.points(
    1, read=PASSES, seconds=60, hint="subtract the largest of the row, or exp runs out of range"
)
def test_softmax(answers):
    """Softmax: right where four rows fit, for large numbers too."""
    needs("torch")
    for rows, n in SHORT:
        check_softmax(answers, rows, n)


@pytest.mark.points(
    1,
    after="test_softmax",
    read=PASSES,
    seconds=60,
    hint="a row that is on the chip need not be fetched again",
)
def test_softmax_bytes(answers, probe):
    """Softmax: each element read once and written once where four rows fit."""
    needs("torch")
    for rows, n in SHORT:
        probe.check_moved(*check_softmax(answers, rows, n), "x", 1, 1)


@pytest.mark.points(
    2,
    after="test_softmax_bytes",
    read=PASSES,
    seconds=60,
    hint="one pass can find the maximum and the sum: when the maximum grows by d, the sum so far "
    "shrinks by exp(-d)",
)
def test_softmax_long(answers, probe):
    """Softmax: rows of any length, each element read at most twice and written once."""
    needs("torch")
    for rows, n in LONG:
        # A row may be kept in part for the second pass.
        probe.check_moved(*check_softmax(answers, rows, n), "x", 1, 2)


# --- a fused kernel -------------------------------------------------------------------------------

GATES = [(1, 128, "float32"), (1, 5, "float32"), (3, 100, "float32"), (2, 129, "float16"),
         (5, 300, "float16")]  # fmt: skip


def check_swiglu(answers, rows, F, dtype):
    """What was moved, once what came out is right: the case and the measurement."""
    case = f"swiglu of {rows} x {2 * F} {dtype}"
    h = numbers(rows, 2 * F, shift=500.0 if dtype == "float32" else 0.0)
    if case not in RAN:
        RAN[case] = answers.probe.swiglu(h, dtype)
    got = RAN[case]
    for i, row in enumerate(h):
        for j, (gate, up) in enumerate(zip(row[:F], row[F:], strict=True)):
            expected = gate / (1 + exp(-gate)) * up
            within = 1e-6 + abs(expected) * (1e-3 if dtype == "float16" else 1e-5)
            expect(f"{case}: out[{i}, {j}]", got["out"][i][j], expected, within=within)
    return case, got


@pytest.mark.points(
    2,
    tier="chip",
    seconds=60,
    read=ACT,
    hint="a row of h has 2F elements; the last tile of a row is rarely full, so mask it",
)
def test_swiglu(answers):
    """SwiGLU kernel: right for any F, and it touches nothing but h and out."""
    needs("torch", "triton")
    for rows, F, dtype in GATES:
        check_swiglu(answers, rows, F, dtype)


@pytest.mark.points(
    2,
    tier="chip",
    after="test_swiglu",
    seconds=60,
    read=ACT,
    hint="what a kernel has loaded it still has: use it twice, load it once",
)
def test_swiglu_bytes(answers, probe):
    """SwiGLU kernel: each element of h loaded once, each element of out stored once."""
    needs("torch", "triton")
    for rows, F, dtype in GATES:
        probe.check_moved(*check_swiglu(answers, rows, F, dtype), "h", 1, 1)
