"""The torch twin of the Hopper kernel against the definition; FP8, its tricks, and its errors."""

from itertools import pairwise
from math import inf

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.bench.hopper.rmse import outliers, rmse
from weft.plan.hopper.schedule import Tile
from weft.ref import hopper
from weft.ref.attention.exact import attention
from weft.ref.hopper import (
    attention_fp8,
    eight_bit_matmul,
    hadamard,
    incoherent,
    quantized,
    standard,
)

SMALL = Tile(16, 32, warpgroups=1)  # 64 queries, 32 keys
SHAPES = [  # B, T, S, H, G, K, V
    (1, 1, 1, 1, 1, 16, 16),
    (2, 70, 45, 4, 2, 16, 5),
    (1, 129, 200, 3, 1, 24, 16),
    (2, 63, 64, 2, 2, 10, 7),
    (1, 65, 33, 6, 3, 8, 8),
]


def tensors(B, T, S, H, G, K, V, dtype=torch.float64, seed=0):
    dice = torch.Generator().manual_seed(seed)
    shapes = (B, T, H, K), (B, S, G, K), (B, S, G, V)
    return [torch.randn(s, generator=dice, dtype=torch.float64).to(dtype) for s in shapes]


def signs(K, seed=0):
    dice = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, (K,), generator=dice) * 2 - 1


# --- the twin ------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_tiles_add_up_to_attention(shape, causal):
    q, k, v = tensors(*shape)
    o, lse = hopper.attention(q, k, v, causal, lse=True, tile=SMALL)
    want, want_lse = attention(q, k, v, causal, lse=True)
    torch.testing.assert_close(o, want, atol=1e-13, rtol=0)
    torch.testing.assert_close(lse, want_lse, atol=1e-13, rtol=0)
    torch.testing.assert_close(hopper.attention(q, k, v, causal), want, atol=1e-13, rtol=0)
    other = hopper.attention(q, k, v, causal, scale=0.3, tile=SMALL)
    torch.testing.assert_close(other, attention(q, k, v, causal, scale=0.3), atol=1e-13, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_is_no_worse_than_the_standard(dtype, causal):
    q, k, v = tensors(1, 200, 300, 2, 1, 64, 64, dtype)
    truth = attention(q.double(), k.double(), v.double(), causal)
    o = hopper.attention(q, k, v, causal)
    assert o.dtype == dtype
    ours = rmse(o, truth)
    if not causal:
        assert ours <= rmse(standard(q, k, v), truth)
    assert ours < {torch.bfloat16: 1e-3, torch.float16: 1e-4, torch.float32: 1e-6}[dtype]


def test_gradients_go_through():
    q, k, v = (x.requires_grad_() for x in tensors(1, 9, 12, 2, 1, 4, 3))
    tile = Tile(16, 16, warpgroups=1)
    g = torch.randn(1, 9, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad(hopper.attention(q, k, v, True, tile=tile), (q, k, v), g)
    want = torch.autograd.grad(attention(q, k, v, True), (q, k, v), g)
    for a, b in zip(ours, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-13, rtol=0)


def test_keys_come_from_the_right_and_scores_before_values():
    told = []

    def score(cols):
        told.append(f"S{cols.start}")
        return torch.zeros(1, 1, 2, cols.stop - cols.start)

    def value(p, cols, o):
        told.append(f"O{cols.start}")
        return o + p.sum(-1, keepdim=True)

    order = hopper.span(slice(0, 2), 2, 70, True, 32)
    assert [(c.start, c.stop) for c in order] == [(64, 70), (32, 64), (0, 32)]
    b_o, _, b_sum = hopper.stream(score, value, order)
    assert told == ["S64", "S32", "O64", "S0", "O32", "O0"]
    assert b_o.squeeze(-1).tolist() == b_sum.tolist() == [[[70, 70]]]


def test_a_tile_that_sees_nothing_is_walked_all_the_same():
    assert hopper.span(slice(0, 64), 200, 100, True, 32) == [slice(0, 32)]
    q, k, v = tensors(1, 200, 100, 2, 1, 16, 16)
    o, lse = hopper.attention(q, k, v, causal=True, lse=True, tile=SMALL)
    assert (o[:, :100] == 0).all() and (lse[:, :100] == -inf).all()
    assert torch.equal(o[:, 100:] != 0, torch.ones(1, 100, 2, 16, dtype=torch.bool))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 90), st.integers(1, 4))
def test_tiles_of_keys_are_those_that_are_seen(T, S, tile_k, groups):
    for start in range(0, T, 64 * groups):
        rows = slice(start, min(start + 64 * groups, T))
        order = hopper.span(rows, T, S, True, tile_k)
        assert order[-1].start == 0
        assert all(a.start == b.stop for a, b in pairwise(order))
        last = min(S, max(rows.stop - 1 + S - T + 1, 1))
        assert order[0].start < last <= max(order[0].stop, 1)


def test_bad_input_is_refused():
    q, k, v = tensors(1, 4, 5, 3, 1, 8, 8)
    with pytest.raises(ValueError, match="k is float32, must be as q"):
        hopper.attention(q, k.float(), v)
    with pytest.raises(ValueError, match="x is 24 wide, must be a power of two"):
        hadamard(torch.zeros(2, 24))
    with pytest.raises(ValueError, match=r"signs has shape \[4\], must be \[8\]"):
        incoherent(q, signs(4))
    with pytest.raises(ValueError, match="each \\+1 or -1"):
        incoherent(q, torch.zeros(8))
    with pytest.raises(ValueError, match="length is 0, must be a whole number"):
        quantized(q, 0)


# --- eight bits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 8, 64, 256])
def test_the_hadamard_transform_is_orthogonal_and_its_own_inverse(K):
    H = hadamard(torch.eye(K, dtype=torch.float64))
    torch.testing.assert_close(H @ H.T, torch.eye(K, dtype=torch.float64))
    torch.testing.assert_close(H, H.T)
    torch.testing.assert_close(H.abs(), torch.full((K, K), K**-0.5, dtype=torch.float64))
    x = torch.randn(3, 5, K, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(hadamard(x), x @ H)
    torch.testing.assert_close(hadamard(hadamard(x)), x)


def test_incoherent_processing_keeps_scores_and_spreads_outliers():
    q, k, _ = tensors(1, 40, 50, 1, 1, 128, 1)
    k[0, 17, 0, 5] = 100.0
    s = signs(128)
    spread_q, spread_k = incoherent(q, s), incoherent(k, s)
    torch.testing.assert_close(
        spread_q[0, :, 0] @ spread_k[0, :, 0].T, q[0, :, 0] @ k[0, :, 0].T, atol=1e-10, rtol=0
    )
    assert spread_k.abs().max() < 100 * 128**-0.5 + 5
    assert incoherent(q.half(), s).dtype == torch.half


@pytest.mark.parametrize("length", [1, 7, 64, 1000, None])
def test_quantised_numbers_are_about_the_same(length):
    x = outliers((2, 3, 100, 16), torch.Generator().manual_seed(0))
    x[0, 0, :7] = 0.0
    x8, by = quantized(x, length)
    assert (x8.dtype, by.shape) == (torch.float8_e4m3fn, (2, 3, 100, 1))
    back = x8.double() * by
    top = by * 448
    error = (back - x).abs()
    assert (error <= (x.abs() / 16).clamp_min(top / 448 / 2**9 / 2 * 1.001)).all()
    step = length or 600
    for start in range(0, 100, step):
        block = by[:, :, start : start + step]
        assert (block == block[:, :, :1]).all()
        if length:
            highest = x[:, :, start : start + step].abs().amax((-1, -2))
            want = torch.where(highest > 0, highest, 448.0)
            torch.testing.assert_close(block[:, :, 0, 0] * 448, want)
    if length is None:
        assert by.unique().numel() == 1
        assert by.max() * 448 == pytest.approx(x.abs().max().item())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
def test_fp8_attention_is_attention_of_what_it_reads(blocks, causal):
    """Numbers that E4M3 has come out as if nothing had been rounded but the weights."""
    dice = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randint(-8, 9, s, generator=dice).float()
        for s in ((1, 70, 2, 16), (1, 90, 1, 16), (1, 90, 1, 16))
    )
    for x in (q, k, v):
        x[:, ::10, :, 0] = 7.0  # 448 / 64: the scale of every block is a power of two
        x.clamp_(-7, 7)
    q[:, 64:] *= 2  # and no two blocks have the same
    k[:, 32:64] *= 0.5
    v[:, 32:64] *= 4
    o, lse = attention_fp8(q, k, v, causal, lse=True, tile=SMALL, blocks=blocks, scale=0.01)
    want, want_lse = attention(q, k, v, causal, scale=0.01, lse=True)
    torch.testing.assert_close(lse, want_lse, atol=1e-4, rtol=0)
    assert rmse(o, want.double()) < 0.05 * float(want.square().mean().sqrt())
    assert o.dtype == torch.float32


def test_an_outlier_disturbs_its_own_tile_alone_unless_there_is_one_scale():
    """Causal, so that the first queries see the first tile of keys and no other."""
    q, k, v = tensors(1, 96, 96, 1, 1, 16, 16, torch.float32)

    def first(**outlier):
        given = {"q": q.clone(), "k": k.clone(), "v": v.clone()}
        for name, row in outlier.items():
            given[name][0, row, 0, 0] = 3000.0
        one, each = (attention_fp8(**given, causal=True, tile=SMALL, blocks=b) for b in (0, 1))
        return one[:, :32], each[:, :32]

    plain = first()
    for outlier in ({"k": 32}, {"v": 32}, {"q": 64}):
        found = first(**outlier)
        assert torch.equal(found[1], plain[1])
        assert not torch.equal(found[0], plain[0])


def test_fp8_on_odd_sizes_grouped_heads_and_empty_rows():
    q, k, v = tensors(2, 130, 75, 4, 2, 32, 24, torch.bfloat16)
    o, lse = attention_fp8(q, k, v, causal=True, lse=True, signs=signs(32))
    want, want_lse = attention(q, k, v, causal=True, lse=True)
    assert (o.dtype, o.shape, lse.shape) == (torch.bfloat16, want.shape, want_lse.shape)
    assert torch.equal(lse == -inf, want_lse == -inf) and (o[:, :55] == 0).all()
    assert rmse(o, want.double()) < 0.05


# --- sums of fourteen bits ------------------------------------------------------------------------


def test_a_sum_keeps_the_highest_bits_of_its_addends():
    """1 + 2^-n is cut off once 1, which is half of the power above it, fills the bits."""
    small = torch.tensor([2.0**-9])  # of e4m3, the smallest there is
    a = torch.cat([torch.ones(1), small.expand(31)])[None].to(torch.float8_e4m3fn)
    b = torch.ones(32, 1).to(torch.float8_e4m3fn)
    whole = 1 + 31 * 2.0**-9
    assert eight_bit_matmul(a, b).item() == eight_bit_matmul(a, b, bits=10).item() == whole
    assert eight_bit_matmul(a, b, bits=9).item() == 1.0
    assert eight_bit_matmul(a, b, bits=9, c=torch.full((1, 1), 2.0)).item() == 3.0
    with pytest.raises(ValueError, match="bits is 0"):
        eight_bit_matmul(a, b, bits=0)


def test_with_bits_enough_the_sums_are_those_of_fp32():
    q, k, v = tensors(1, 70, 100, 2, 1, 64, 64)
    given = [x.bfloat16() for x in (q, k, v)]
    for causal in (False, True):
        plain = hopper.attention_fp8(*given, causal)
        assert torch.allclose(hopper.attention_fp8(*given, causal, bits=40), plain, rtol=1e-2)


def test_with_fourteen_bits_a_long_sum_falls_short():
    """What is cut off is always towards zero. 128 weights alike fit into 14 bits, 4096 do not."""
    short = []
    for S in (128, 4096):
        q, k = torch.zeros(1, 1, 1, 64), torch.zeros(1, S, 1, 64)
        v = 0.5 + torch.rand(1, S, 1, 64, generator=torch.Generator().manual_seed(0))
        exact = hopper.attention_fp8(q, k, v)
        short.append(((exact - hopper.attention_fp8(q, k, v, bits=14)) / exact).mean().item())
    assert short[0] == 0 and 1e-4 < short[1] < 1e-1
