"""The hidden tests: 4 of the 20 points, on sizes drawn at random."""

import importlib.util
from math import exp, inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weft.grade import WrongAnswer, expect
from weft.plan.roofline import (
    ElementwiseOp,
    attention,
    fused,
    layer_norm,
    matmul,
    matvec,
    vector_add,
)

pytestmark = pytest.mark.hidden
COUNTING, TOKENS = "Counting FLOPs and bytes", "How many rows a weight needs"
FUSING, LAYER = "Why fusing helps", "Which wall does a layer meet?"
PASSES, ACT = "Three passes, two, one", "Why fusing helps"


DIM = st.integers(1, 5000) | st.integers(2**20, 2**21)  # products that a float cannot hold


@pytest.mark.points(0.5, read=COUNTING, hint="whole numbers, however large", seconds=30)
@given(a=DIM, b=DIM, c=DIM, size=st.sampled_from([1, 2, 4, 8]))
def test_work_any(answers, a, b, c, size):
    """Five operations of any size: FLOPs and bytes."""
    for name, dims, right in (
        ("vector_add", (a,), vector_add(a, size)),
        ("matvec", (a, b), matvec(a, b, size)),
        ("matmul", (a, b, c), matmul(a, b, c, size)),
        ("layer_norm", (a, b), layer_norm(a, b, size)),
        ("attention", (a, b, c), attention(a, b, 1, c, size)),
    ):
        got = answers.work(name, dims, size)
        if not isinstance(got, list | tuple) or len(got) != 2:
            raise WrongAnswer(f"work({name!r}, {dims}, {size=}): expected a pair, got {got!r}", "")
        expect(f"work({name!r}, {dims}, {size=})", tuple(got), (right.flops, right.bytes))


@pytest.mark.points(
    0.5,
    read=TOKENS,
    hint="whole numbers: a quotient of floats may fall on the wrong side",
    seconds=60,
)
@given(
    n=st.integers(1, 5000),
    k=st.integers(1, 5000),
    size=st.sampled_from([1, 2, 4]),
    rate=st.integers(1, 10**15),
    bandwidth=st.integers(1, 10**13),
)
@example(n=8, k=8, size=4, rate=5, bandwidth=3)
@example(n=3, k=3, size=1, rate=2**54 + 2, bandwidth=2**54 + 1)
def test_smallest_batch_any(answers, n, k, size, rate, bandwidth):
    """The smallest batch for any weight on any chip."""
    case = f"smallest_batch({n=}, {k=}, {size=}, {rate=}, {bandwidth=})"
    got = answers.smallest_batch(n, k, size, rate, bandwidth)

    def compute(m):
        work = matmul(m, n, k, size)
        return work.flops * bandwidth >= work.bytes * rate

    if 2 * n * k * bandwidth <= rate * size * (n + k):
        expect(case, got, None)
    elif not isinstance(got, int) or got < 1 or not compute(got):
        raise AssertionError(f"{case}: got {got!r}, which is not bound by compute")
    elif got > 1 and compute(got - 1):
        raise AssertionError(f"{case}: got {got}, where {got - 1} would do")


@st.composite
def chains(draw):
    """Steps whose operands are inputs or earlier results, cuts, sizes, and what is kept."""
    names, steps = ["x", "bias"], []
    for i in range(draw(st.integers(1, 6))):
        operands = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        names.append(f"y{i}")
        steps.append((names[-1], operands))
    cuts = [i for i in range(1, len(steps)) if draw(st.booleans())]
    keep = [name for name, _ in steps[:-1] if draw(st.booleans())] + [steps[-1][0]]
    return steps, cuts, {name: draw(st.integers(1, 9)) for name in names}, keep


@pytest.mark.points(0.5, read=FUSING, hint="try a result that two later kernels need", seconds=60)
@given(chain=chains())
def test_chain_bytes_any(answers, chain):
    """Any chain of steps, cut anywhere."""
    steps, cuts, sizes, keep = chain
    kernel = [sum(cut <= i for cut in cuts) for i in range(len(steps))]
    makers = {result: kernel[i] for i, (result, _) in enumerate(steps)}
    moved = 0
    for name, size in sizes.items():
        asking = {kernel[i] for i, (_, operands) in enumerate(steps) if name in operands}
        elsewhere = asking - {makers.get(name)}
        moved += size * (len(elsewhere) + (name in makers and bool(elsewhere or name in keep)))
    expect(f"chain_bytes{chain}", answers.chain_bytes(steps, cuts, sizes, keep), moved)


SILU = [ElementwiseOp("silu", 4), ElementwiseOp("product", 1, others=1)]


@pytest.mark.points(0.5, read=LAYER, hint="exactly on the ridge is compute", seconds=30)
@given(
    rows=st.integers(1, 5000),
    D=st.integers(1, 9000),
    F=st.integers(1, 30000),
    size=st.sampled_from([1, 2, 4]),
    rate=st.sampled_from([1, 5, 7, 10**12, 989 * 10**12]),
    bandwidth=st.sampled_from([1, 3, 12, 24, 3 * 10**12]),
)
@example(rows=3, D=4, F=8, size=4, rate=1, bandwidth=12)  # "add" is exactly on the ridge
@example(rows=3, D=4, F=8, size=4, rate=5, bandwidth=12)  # and "swiglu" here
def test_mlp_any(answers, rows, D, F, size, rate, bandwidth):
    """A gated MLP of any size on any chip: its walls and its time."""
    case = f"mlp({rows=}, {D=}, {F=}, {size=}, {rate=:g}, {bandwidth=:g})"
    parts = {
        "norm": layer_norm(rows, D, size),
        "up": matmul(rows, 2 * F, D, size),
        "swiglu": fused(rows * F, size, SILU),
        "down": matmul(rows, D, F, size),
        "add": vector_add(rows * D, size),
    }
    walls, seconds = answers.mlp(rows, D, F, size, float(rate), float(bandwidth))
    for name, work in parts.items():
        by_compute = work.flops * bandwidth >= work.bytes * rate
        expect(f"{case}: wall of {name}", walls[name], "compute" if by_compute else "memory")
    right = sum(max(work.flops / rate, work.bytes / bandwidth) for work in parts.values())
    expect(f"{case}: seconds", seconds, right, within=1e-9 * right)


@pytest.mark.points(
    1,
    after="test_softmax_long",
    read=PASSES,
    hint="try a row that begins with more -inf than fit into a tile",
    seconds=60,
)
@settings(max_examples=20)
@given(
    rows=st.integers(1, 3),
    n=st.integers(1, 400),
    capacity=st.integers(64, 2000),
    masked=st.integers(0, 399),
    seed=st.integers(0, 10**6),
)
@example(rows=1, n=300, capacity=256, masked=200, seed=1)
def test_softmax_any(answers, probe, rows, n, capacity, masked, seed):
    """Softmax of any rows in any memory, some of them with -inf in front."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: needs torch")
    x = [
        [-inf if j < min(masked, n - 1) else (seed * (j + 7) + i) % 61 / 2 for j in range(n)]
        for i in range(rows)
    ]
    case = f"softmax of {rows} x {n} float32, {min(masked, n - 1)} -inf in front, {capacity=}"
    got = answers.probe.softmax(x, capacity)
    for i, row in enumerate(x):
        weights = [exp(a - max(row)) for a in row]
        for j, weight in enumerate(weights):
            expected = weight / sum(weights)
            within = 1e-6 + 2e-4 * expected
            expect(f"{case}: out[{i}, {j}]", got["out"][i][j], expected, within=within)
    probe.check_moved(case, got, "x", 1, 1 if 16 * n <= capacity else 2)


@pytest.mark.points(
    1,
    tier="chip",
    after="test_swiglu_bytes",
    read=ACT,
    hint="try an F just below, at and just above a multiple of BLOCK",
    seconds=90,
)
@settings(max_examples=15)
@given(
    rows=st.integers(1, 4),
    F=st.integers(1, 400),
    dtype=st.sampled_from(["float16", "float32"]),
    seed=st.integers(0, 10**6),
)
def test_swiglu_any(answers, probe, rows, F, dtype, seed):
    """SwiGLU kernel at any size: right, and every byte moved once."""
    if not all(map(importlib.util.find_spec, ("torch", "triton"))):
        pytest.skip("not run: needs torch and triton")
    h = [[(seed * (j + 7) + 3 * i) % 129 / 8 - 8 for j in range(2 * F)] for i in range(rows)]
    case = f"swiglu of {rows} x {2 * F} {dtype}"
    got = answers.probe.swiglu(h, dtype)
    for i, row in enumerate(h):
        for j, (gate, up) in enumerate(zip(row[:F], row[F:], strict=True)):
            expected = gate / (1 + exp(-gate)) * up
            within = 1e-6 + abs(expected) * (1e-3 if dtype == "float16" else 1e-5)
            expect(f"{case}: out[{i}, {j}]", got["out"][i][j], expected, within=within)
    probe.check_moved(case, got, "h", 1, 1)
