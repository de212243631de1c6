"""The versions before the lists: the same numbers, and what each of them reads and computes."""

import pytest
import torch

from weft.kernels.sparse import block_sparse, versions
from weft.plan.sparse import blocks
from weft.ref import sparse as reference

from .support.interpreted import counted

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VERSIONS = {"masked": versions.masked, "skipping": versions.skipping, "lists": block_sparse}
UNIT = 32  # rows of a square in the interpreter


def drawn(T, S, H=2, G=1, K=16, V=16):
    dice = torch.Generator().manual_seed(T)
    shapes = (2, T, H, K), (2, S, G, K), (2, S, G, V)
    return [torch.randn(shape, generator=dice).to(DEVICE) for shape in shapes]


def window_layout(T, block, window):
    """[1, T / block, T / block]: the blocks that a causal window touches."""
    n = -(-T // block)
    layout = torch.zeros(1, n, n, dtype=torch.bool)
    for row, column in blocks(T, block, window, causal=True):
        layout[0, row, column] = True
    return layout.to(DEVICE)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("block", "heads", "causal"), [(7, 2, True), (32, 1, False)])
def test_every_version_is_the_reference_with_its_gradients(version, block, heads, causal):
    T, S = 45, 70
    dice = torch.Generator().manual_seed(block)
    layout = torch.rand(heads, -(-T // block), -(-S // block), generator=dice) < 0.4
    layout[0, 1] = False  # rows that see nothing
    layout = layout.to(DEVICE)
    ours = [x.requires_grad_() for x in drawn(T, S)]
    wide = [x.detach().double().requires_grad_() for x in ours]
    found = VERSIONS[version](*ours, layout, block, 0.3, causal)
    wanted = reference.block_sparse(*wide, layout, block, 0.3, causal)
    every = (found, *torch.autograd.grad(found.sum(), ours))
    right = (wanted, *torch.autograd.grad(wanted.sum(), wide))
    for one, other in zip(every, right, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(DEVICE != "cpu", reason="counts what the interpreter does")
def test_what_each_version_reads_and_computes():
    T, H, K, n = 160, 2, 16, 5
    q, k, v = drawn(T, T, H=H, G=H, K=K)
    layout = window_layout(T, UNIT, 40)
    m, below = int(layout.sum()), n * (n + 1) // 2
    assert m < below
    half = UNIT * (UNIT + 1) // 2  # pairs of a square on the diagonal
    pairs = n * half + (m - n) * UNIT**2
    squares = {"masked": below, "skipping": m, "lists": m}
    told = {  # of each head, to know what is seen
        "masked": T * (T + 1) // 2,
        "skipping": n * n + m + pairs,
        "lists": 3 * n + m + n * half,  # below the diagonal all pairs of a square are seen
    }
    for version, face in VERSIONS.items():
        with counted(q=q, k=k, v=v) as read:
            face(q, k, v, layout, UNIT, None, True)
        assert read["k"] == read["v"] == 2 * H * squares[version] * UNIT * K, version
        assert read["products"] == 2 * H * squares[version] * 2 * UNIT * UNIT * K, version
        beside = read["all"] - read["q"] - read["k"] - read["v"]
        assert beside == 2 * H * told[version], version


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_names_a_wrong_layout(version):
    q, k, v = drawn(8, 8)
    with pytest.raises(ValueError, match=r"layout has shape \[1, 3, 3\], must be"):
        VERSIONS[version](q, k, v, torch.ones(1, 3, 3, dtype=torch.bool, device=DEVICE), 4)
    with pytest.raises(ValueError, match="block is 0"):
        VERSIONS[version](q, k, v, None, 0)
