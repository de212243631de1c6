"""The experts' matmuls in Gluon: values, gradients, ends of groups, and what is missing if less."""

import itertools

import pytest
import torch

from weft.kernels import experts
from weft.kernels.experts import hopper
from weft.kernels.experts.groups import groups
from weft.kernels.experts.hopper import launch as tiles
from weft.kernels.experts.hopper import matmul
from weft.kernels.experts.hopper.matmul import announce
from weft.kernels.gluon import gl, jit
from weft.kernels.gluon.interpreter import Fault
from weft.kernels.hopper import launch
from weft.ref.experts import route

HALF, BRAIN = torch.float16, torch.bfloat16
STEP = {HALF: 2**-11, BRAIN: 2**-8}  # relative error of a rounded number


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch, request):
    """Interpret, in the same order of events every time; but natively where a GPU is asked for."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        monkeypatch.setattr(launch, "SEEDS", itertools.count())


def drawn(*shapes, dtype=BRAIN, device="cpu"):
    dice = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(s, generator=dice).to(device, dtype).requires_grad_() for s in shapes]


def looped(x, w, sizes):
    """One matmul after the other, and zeros for the rows behind the last."""
    parts = x.split([*sizes, len(x) - sum(sizes)])
    return torch.cat([*(part @ one for part, one in zip(parts, w, strict=False)),
                      x.new_zeros(len(parts[-1]), w.shape[2])])  # fmt: skip


def near(found, exact, dtype):
    """Nothing but rounding at the end, and of what comes between."""
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == dtype and one.isfinite().all()
        assert (one.double() - other).norm() <= 2 * STEP[dtype] * other.norm()


def both(x, w, sizes, dy):
    """What comes out of the kernels, and in float64: y, dX and dW."""
    y = hopper.grouped_matmul(x, w, torch.tensor(sizes, device=x.device))
    wide = [one.detach().double().requires_grad_() for one in (x, w)]
    wanted = looped(*wide, sizes)
    exact = wanted, *torch.autograd.grad(wanted, wide, dy.double())
    return (y, *torch.autograd.grad(y, (x, w), dy)), exact


CASES = [  # sizes, rows behind, D, F; blocks take several tiles, and rings go round
    ([4, 0, 9], 0, 8, 16), ([130, 1, 0, 70, 300], 3, 136, 264), ([0], 2, 8, 8),
    ([0, 17, 0], 0, 72, 136), ([128, 64, 192], 0, 256, 128), ([63, 129], 200, 200, 384),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize(("sizes", "behind", "D", "F"), CASES)
def test_each_group_of_rows_meets_its_own_matrix(sizes, behind, D, F, dtype):
    rows = sum(sizes) + behind
    *given, dy = drawn((rows, D), (len(sizes), D, F), (rows, F), dtype=dtype)
    near(*both(*given, sizes, dy), dtype)


def test_rows_of_a_margin_and_matrices_that_lie_the_other_way():
    x, w, dy = drawn((150, 88), (2, 272, 72), (150, 272))
    near(*both(x[:, 8:-8], w.transpose(1, 2), [20, 130], dy), BRAIN)
    near(*both(x[:, 3:75], w[:, ::2, :].transpose(1, 2), [20, 130], dy[:, :136]), BRAIN)


def test_what_is_not_finite_stays_within_its_row_and_its_expert():
    x, w = (one.detach() for one in drawn((140, 72), (2, 72, 136)))
    x[100, 5] = torch.nan  # the first row of expert 1, which a tile of expert 0 reads, too
    w[1, 0, 7] = torch.inf
    y = hopper.grouped_matmul(x, w, torch.tensor([100, 40]))
    assert y[:100].isfinite().all() and y[100].isnan().all()
    assert not y[101:, 7].isfinite().any() and y[101:, :7].isfinite().all()


@pytest.mark.parametrize("face", [hopper.grouped_matmul, experts.grouped_matmul])
def test_gradients_of_nobodys_rows_and_of_idle_experts_are_written_as_zeros(face, monkeypatch):
    """Where memory that nobody wrote holds NaN; torch._grouped_mm leaves such rows as they are."""
    new = torch.Tensor.new_empty

    def poisoned(self, *shape, **options):
        made = new(self, *shape, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
    x, w = drawn((20, 16), (4, 16, 8))
    y = face(x, w, torch.tensor([0, 9, 0, 6]))
    dx, dw = torch.autograd.grad(y.sum(), (x, w))
    assert not y[15:].any() and not dx[15:].any() and not dw[[0, 2]].any()
    assert y[:15].all() and dx[:15].all() and dw[[1, 3]].all()


@pytest.mark.parametrize("most", [None, 30])
def test_the_mlp_is_that_of_triton_with_all_gradients(most):
    T, D, E, F, k = 90, 24, 5, 40, 2
    x, router, up, down, dy = drawn((T, D), (D, E), (E, D, F), (E, F, D), (T, D))
    routes = route((x @ router).detach().float(), k, most)
    weight = routes.weight.requires_grad_()
    answers = []
    for face in (hopper.mlp, experts.mlp):
        y = face(x, routes.expert, weight, routes.kept, up, down)
        answers.append((y, *torch.autograd.grad(y, (x, weight, up, down), dy)))
    for one, other in zip(*answers, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, atol=2e-2 * other.abs().max().item(), rtol=2e-2)


def test_two_runs_in_another_order_of_events_give_the_same_bits():
    *given, dy = drawn((200, 72), (3, 72, 264), (200, 264))
    runs = [both(*given, [70, 0, 129], dy)[0] for _ in range(2)]
    assert next(launch.SEEDS) == 4
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_tiles_are_as_wide_as_pads_least():
    assert [tiles.columns_of(F) for F in (8, 128, 136, 264, 384, 768, 2048)] == [
        128, 128, 256, 128, 128, 256, 256,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("D", "F", "dtype", "message"),
    [
        (8, 8, torch.float32, "x is float32, must be float16 or bfloat16"),
        (12, 8, HALF, "D is 12, must be a multiple of 8"),
        (8, 20, HALF, "F is 20, must be a multiple of 8"),
    ],
)
def test_what_the_machine_cannot_take_is_refused(D, F, dtype, message):
    x, w = drawn((4, D), (2, D, F), dtype=dtype)
    with pytest.raises(ValueError, match=message):
        hopper.grouped_matmul(x, w, torch.tensor([2, 2]))


# --- the interpreter sees what goes wrong ---------------------------------------------------------


def nothing(*_, **__):
    pass


def hasty(b):
    """`wgmma_go_on`, without waiting for the product before."""
    b.goes_on = True
    return b


@jit
def late(x, count, LATER: gl.constexpr):
    """`announce`, when one more tile has been asked for."""
    announce(x, count - LATER, 2 * LATER)


@pytest.mark.parametrize(
    ("word", "other", "complaint"),
    [
        ("wgmma_go_on", hasty, r"writes [xw]\.buf.* while a product"),
        ("announce", late, r"for phase . of x\.full"),
        ("let_go", nothing, r"for phase . of [xw]\.empty"),
        ("fence", nothing, "no fence"),
        ("copy_wait", nothing, "before it has landed"),
        ("copy_commit", nothing, "before it has landed|under way"),
        ("announce", nothing, r"for phase . of x\.full"),
        ("tma_store_wait", nothing, r"writes y.* while a store|are under way"),
    ],
)
def test_every_word_has_its_place(word, other, complaint, monkeypatch):
    x, w = (one.detach() for one in drawn((300, 200), (2, 200, 136)))
    monkeypatch.setattr(matmul, word, other)
    given = tiles.tabled(groups(torch.tensor([170, 130]), 300, tiles.ROWS))
    with pytest.raises(Fault, match=complaint):
        for _ in range(4):
            tiles.matmul(x, w, given, gather=torch.arange(300).flip(0))
            tiles.matmul(x, w, given)


# --- on a GPU -------------------------------------------------------------------------------------

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
only_hopper = pytest.mark.skipif(
    torch.cuda.is_available() and not HOPPER, reason="needs a GPU: a Hopper one"
)


@pytest.mark.gpu
@only_hopper
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize(
    ("sizes", "behind", "D", "F"),
    [*CASES, ([1000, 0, 1, 129, 4000, 127], 77, 2048, 768), ([257] * 64, 0, 768, 2048)],
)
def test_on_a_gpu_each_group_of_rows_meets_its_own_matrix(sizes, behind, D, F, dtype):
    rows = sum(sizes) + behind
    shapes = (rows, D), (len(sizes), D, F), (rows, F)
    *given, dy = drawn(*shapes, dtype=dtype, device="cuda")
    near(*both(*given, sizes, dy), dtype)


@pytest.mark.gpu
@only_hopper
def test_a_hundred_runs_at_full_load_give_the_same_bits():
    T, D, E, F, k = 3000, 2048, 32, 768, 4
    x, router, up, down, dy = drawn((T, D), (D, E), (E, D, F), (E, F, D), (T, D), device="cuda")
    routes = route((x @ router).detach().float(), k)
    weight = routes.weight.requires_grad_()

    def answers(face):
        y = face(x, routes.expert, weight, routes.kept, up, down)
        return y, *torch.autograd.grad(y, (x, weight, up, down), dy)

    first = answers(hopper.mlp)
    for one, other in zip(first, answers(experts.mlp), strict=True):
        assert (one - other).norm() <= 0.02 * other.norm()
    for _ in range(100):
        assert all(torch.equal(a, b) for a, b in zip(first, answers(hopper.mlp), strict=True))


@pytest.mark.gpu
@only_hopper
def test_more_than_two_to_the_31_elements():
    """Where torch's grouped matmul has met a bad address."""
    rows, D, F = 2**20 + 3, 64, 2056
    x, w = drawn((rows, D), (2, D, F), device="cuda")
    y = hopper.grouped_matmul(x, w, torch.tensor([rows - 50, 50], device="cuda"))
    assert y.numel() > 2**31
    dx, dw = torch.autograd.grad(y, (x, w), y.detach())
    exact = x[-50:].double() @ w[1].double()
    near([y[-50:]], [exact], BRAIN)
    near([dx[-50:]], [y[-50:].double() @ w[1].double().T], BRAIN)
    near([dw[1]], [x[-50:].double().T @ y[-50:].double()], BRAIN)
