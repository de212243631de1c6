"""The experts' matmuls against a loop: values, gradients, empty groups, rows of no expert."""

import pytest
import torch

from weft.kernels import compile_for, experts
from weft.kernels.experts.groups import groups
from weft.plan.experts import capacity
from weft.ref import experts as reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("down dx", "up dw")  # a matmul with gathered rows and a gate, and one over rows


def drawn(*shapes, dtype=torch.float32):
    dice = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(s, generator=dice).to(DEVICE, dtype).requires_grad_() for s in shapes]


def looped(x, w, sizes):
    """One matmul after the other, and zeros for the rows behind the last."""
    parts = x.split([*sizes, len(x) - sum(sizes)])
    return torch.cat([*(part @ one for part, one in zip(parts, w, strict=False)),
                      x.new_zeros(len(parts[-1]), w.shape[2])])  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "behind", "D", "F"),
    [([4, 0, 9], 0, 5, 7), ([33, 1, 0, 20], 3, 40, 70), ([0], 2, 3, 3), ([0, 17, 0], 0, 33, 17)],
)
def test_each_group_of_rows_meets_its_own_matrix(sizes, behind, D, F):
    given = drawn((sum(sizes) + behind, D), (len(sizes), D, F))
    (dy,) = drawn((sum(sizes) + behind, F))
    y = experts.grouped_matmul(*given, torch.tensor(sizes, device=DEVICE))
    wide = [one.detach().double().requires_grad_() for one in given]
    wanted = looped(*wide, sizes)
    found = y, *torch.autograd.grad(y, given, dy)
    exact = wanted, *torch.autograd.grad(wanted, wide, dy.double())
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, atol=2e-5, rtol=1e-5)


def test_a_matrix_may_be_a_view_and_rows_may_have_gaps():
    x, w = drawn((5, 12), (2, 4, 6))
    views = x[:, ::2], w.transpose(1, 2)
    sizes = torch.tensor([2, 3], dtype=torch.int32, device=DEVICE)
    torch.testing.assert_close(experts.grouped_matmul(*views, sizes), looped(*views, [2, 3]))


def test_sizes_that_say_more_than_there_are_rows_are_cut_off():
    x, w = drawn((5, 4), (2, 4, 3))
    y = experts.grouped_matmul(x, w, torch.tensor([3, 9], device=DEVICE))
    torch.testing.assert_close(y, looped(x, w, [3, 2]))


@pytest.mark.parametrize("factor", [None, 0.6])
def test_the_mlp_is_switchs_with_all_gradients(factor):
    T, D, E, F, k = 37, 9, 5, 21, 2
    given = drawn((T, D), (D, E), (E, D, F), (E, F, D))
    (dy,) = drawn((T, D))
    x, router, up, down = given
    most = None if factor is None else capacity(T, E, factor, k)
    routes = reference.route(x @ router, k, most)
    y = experts.mlp(x, routes.expert, routes.weight, routes.kept, up, down)
    wide = [one.detach().double().requires_grad_() for one in given]
    wanted = reference.switch(*wide, k=k, factor=factor)
    found = y, *torch.autograd.grad(y, given, dy)
    exact = wanted, *torch.autograd.grad(wanted, wide, dy.double())
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, atol=5e-5, rtol=1e-5)


def test_half_precision_is_summed_in_fp32_and_comes_back():
    x, w = drawn((40, 300), (3, 300, 5), dtype=torch.bfloat16)
    y = experts.grouped_matmul(x, w, torch.tensor([20, 0, 20], device=DEVICE))
    exact = looped(x.double(), w.double(), [20, 0, 20])
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), exact, atol=0.05, rtol=0.01)


def test_no_more_tiles_are_launched_than_the_groups_may_need():
    for sizes, rows, tile in (([3, 0, 4], 9, 2), ([16], 16, 16), ([1, 1, 1, 1], 4, 8)):
        given = groups(torch.tensor(sizes), rows, tile)
        needed = [-(-n // tile) for n in (*sizes, rows - sum(sizes))]
        assert given.tiles.diff(prepend=torch.tensor([0])).tolist() == needed
        assert sum(needed) <= given.most <= rows // tile + len(sizes) + 1
        assert given.first.tolist()[-1] == rows


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_compiled_for_gpus_both_kernels_are_on_tensor_cores_and_spill_nothing(target):
    found = compile_for(experts.mlp, target, only=NAMES)
    assert [one.name for one in found] == list(NAMES)
    for one in found:
        assert one.spills == 0, one.name
        assert sum(one.count(name) for name in ("HMMA", "HGMMA", "UTCHMMA")) > 0, one.name
