"""Attention in a causal window: values and gradients, and that its cost is the tiles it touches."""

import pytest
import torch

from weft.bench import machine_code
from weft.kernels.attention import attention, launch
from weft.kernels.attention.tuned import KernelTile
from weft.plan.sparse import blocks
from weft.ref.attention import attention as dense
from weft.ref.griffin import local_attention

from .support.interpreted import counted

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = DEVICE == "cpu"


def drawn(T, S, H=2, G=1, K=16, V=16, dtype=torch.float32):
    """q, k, v and the gradients of o and of the log-sum-exp."""
    dice = torch.Generator().manual_seed(T)
    shapes = (2, T, H, K), (2, S, G, K), (2, S, G, V), (2, T, H, V), (2, T, H)
    return [torch.randn(shape, generator=dice).to(DEVICE, dtype) for shape in shapes]


def answers(face, q, k, v, do, dlse, **how):
    """o, lse, dq, dk and dv; rows that see nothing have no gradient of their log-sum-exp."""
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    o, lse = face(q, k, v, lse=True, **how)
    dlse = dlse.to(lse.dtype).masked_fill(lse.isinf(), 0)
    grads = torch.autograd.grad((o, lse), (q, k, v), (do, dlse))
    return [x.detach().double() for x in (o, lse, *grads)]


def sliding(T, S, window):
    back = torch.arange(S - T, S).unsqueeze(1) - torch.arange(S)
    return ((back >= 0) & (back < window)).to(DEVICE)


@pytest.mark.parametrize(
    "tile", [(32, 16, 16), (16, 32, 16)], ids=lambda tile: "-".join(map(str, tile))
)
@pytest.mark.parametrize(("T", "S", "G"), [(77, 77, 1), (50, 83, 2), (61, 40, 1)])
def test_it_is_attention_in_a_window_and_so_are_its_gradients(tile, T, S, G, monkeypatch):
    if INTERPRETED:  # several tiles in each direction, and edges that are parts of one
        streams = {"dkdv": KernelTile(tile[1], tile[0], tile[2])}
        monkeypatch.setattr(
            launch, "in_window", lambda target, name, *_: streams.get(name, KernelTile(*tile))
        )
    given = drawn(T, S, G=G)
    for window in (1, 15, 33, 70):
        found = answers(attention, *given, causal=True, window=window)
        wide = [x.double() for x in given]
        wanted = answers(dense, *wide, mask=sliding(T, S, window))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_window_counts_its_query_as_local_attention_does():
    q, k, v, *_ = drawn(20, 31)
    found = attention(q, k, v, causal=True, window=5)
    torch.testing.assert_close(found, local_attention(q, k, v, 5), atol=1e-5, rtol=1e-5)
    alone = attention(q[:, -1:], k, v, causal=True, window=1)
    torch.testing.assert_close(alone, v[:, -1:].expand(-1, -1, 2, -1))


def test_a_window_as_long_as_the_keys_is_none_and_a_mask_goes_with_it():
    q, k, v, *_ = drawn(20, 31)
    whole = attention(q, k, v, causal=True)
    assert torch.equal(attention(q, k, v, causal=True, window=31), whole)
    mask = torch.rand(20, 31, generator=torch.Generator().manual_seed(1)).to(DEVICE) > 0.4
    found = attention(q, k, v, causal=True, window=9, mask=mask)
    wanted = dense(q, k, v, mask=mask & sliding(20, 31, 9))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not INTERPRETED, reason="counts what the interpreter does")
@pytest.mark.parametrize("window", [1, 32, 33, 64, 100])
def test_it_reads_and_computes_the_tiles_that_the_plan_lists(window):
    T, H, K, unit = 160, 2, 16, 32
    q, k, v, do, dlse = drawn(T, T, H=H, G=H, K=K)
    tiles = 2 * H * len(blocks(T, unit, window - 1, causal=True))
    with counted(k=k, v=v) as read, torch.no_grad():
        attention(q, k, v, causal=True, window=window)
    assert read["k"] == read["v"] == tiles * unit * K
    assert read["products"] == tiles * 2 * unit * unit * K
    with counted() as every:
        answers(attention, q, k, v, do, dlse, causal=True, window=window)
    assert every["products"] == tiles * (2 + 3 + 4) * unit * unit * K  # forward, dQ, dK and dV


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"window": 0, "causal": True}, "window is 0, must be a whole number of at least 1"),
        ({"window": -3, "causal": True}, "window is -3, must be"),
        ({"window": 1.5, "causal": True}, r"window is 1\.5, must be"),
        ({"window": 4}, "window is 4, must be None unless causal is True"),
    ],
)
def test_a_wrong_window_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        attention(*drawn(5, 5)[:3], **wrong)


def test_without_a_window_no_kernel_has_one():
    """None is a constant: neither an argument nor a loop of a kernel is there for it."""
    for one in machine_code.attention("sm_90"):
        assert "window" not in one.signature


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("window", [100, 257, 512])
def test_tuned_tiles_are_right_in_full_and_at_both_edges(width, window):
    """Long enough for tiles that are seen whole, which need no mask."""
    given = drawn(1000, 1100, H=4, G=2, K=width, V=width, dtype=torch.bfloat16)
    given[-1].zero_()  # the gradient of the log-sum-exp would be most of dk
    found = answers(attention, *given, causal=True, window=window)
    wide = [x.double() for x in given]
    wanted = answers(dense, *wide, mask=sliding(1000, 1100, window))
    for one, other in zip(found, wanted, strict=True):
        assert (one - other).norm() <= 0.02 * other.norm()
