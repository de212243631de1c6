"""Dilated windows by residue: the same numbers, fewer squares, and nothing copied."""

import pytest
import torch

from weft.kernels.sparse import dilation, longformer
from weft.plan.sparse import blocks
from weft.ref import sparse as reference

from .support.interpreted import counted

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
UNIT = 32  # rows of a square in the interpreter


def drawn(T, H=4, G=2, K=16, V=8):
    dice = torch.Generator().manual_seed(T)
    shapes = (2, T, H, K), (2, T, G, K), (2, T, G, V)
    return [torch.randn(shape, generator=dice).to(DEVICE) for shape in shapes]


@pytest.mark.parametrize(
    ("T", "window", "d", "causal"), [(96, 5, 3, True), (97, 5, 3, False), (71, 40, 2, False)]
)
def test_a_dilated_window_is_longformers_at_any_length(T, window, d, causal):
    assert DEVICE != "cpu" or d * UNIT <= T  # reordered
    ours = [x.requires_grad_() for x in drawn(T)]
    wide = [x.detach().double().requires_grad_() for x in ours]
    found = longformer(*ours, window, d, causal)
    wanted = reference.longformer(*wide, window, d, causal)
    assert found.shape == wanted.shape
    every = (found, *torch.autograd.grad((found**2).sum(), ours))
    right = (wanted, *torch.autograd.grad((wanted**2).sum(), wide))
    for one, other in zip(every, right, strict=True):
        torch.testing.assert_close(one.double(), other, atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize(("T", "d"), [(12, 3), (13, 3), (2, 5), (5, 5)])
def test_residues_are_views_and_come_back_in_order(T, d):
    x = torch.arange(2 * T * 2 * 3).view(2, T, 2, 3)
    seen = []

    def face(part):
        seen.append(part)
        return part

    assert torch.equal(dilation.by_residue(face, d, x), x)
    assert all(one.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for one in seen)
    assert sum(one.numel() for one in seen) == x.numel() and len(seen) == 1 + (T % d > 0 and d < T)


@pytest.mark.skipif(DEVICE != "cpu", reason="counts what the interpreter does")
def test_it_computes_the_squares_of_a_plain_window_instead_of_those_in_place():
    T, d, window, H, K = 192, 3, 31, 2, 16
    q, k, v = drawn(T, H=H, G=H, K=K, V=K)
    with counted(k=k) as read:
        longformer(q, k, v, window, d, causal=True)
    squares = d * len(blocks(T // d, UNIT, window, causal=True))
    assert squares == 9 < len(blocks(T, UNIT, window, d, causal=True)) == 18
    assert read["products"] == 2 * H * squares * 2 * UNIT * UNIT * K
    assert read["k"] == 2 * H * squares * UNIT * K
