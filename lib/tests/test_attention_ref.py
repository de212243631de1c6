"""The reference against the definition, term by term; the tiles against the reference, and what
they move, hold and compute against the closed forms, to the byte."""

from itertools import product
from math import exp, inf, log, nan

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from weft.meter import Sram, SramOverflow, live
from weft.plan.attention.tiling import backward_traffic, footprint, tiles, traffic
from weft.plan.attention.work import operations
from weft.ref.attention import tiled as tiled
from weft.ref.attention.exact import attention, merge
from weft.ref.attention.tiled_backward import backward

SHAPES = [  # B, T, S, H, G, K, V
    (1, 1, 1, 1, 1, 1, 1),
    (2, 5, 7, 4, 2, 3, 6),
    (1, 7, 5, 3, 1, 6, 3),
    (2, 4, 4, 2, 2, 5, 5),
    (1, 1, 9, 4, 4, 2, 3),
]


def tensors(B, T, S, H, G, K, V, dtype=torch.float64, grad=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, T, H, K), (B, S, G, K), (B, S, G, V)
    made = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return [x.to(dtype).requires_grad_(grad) for x in made]


def by_definition(q, k, v, sees, scale):
    """Each output as a sum of its terms, with Python's own floats."""
    (B, T, H, K), (_, S, G, V) = q.shape, v.shape
    o, lse = torch.zeros(B, T, H, V).double(), torch.full((B, T, H), -inf).double()
    for b, i, h in product(range(B), range(T), range(H)):
        g = h * G // H
        keys = [j for j in range(S) if sees(b, h, i, j)]
        scores = [scale * sum(q[b, i, h, x].item() * k[b, j, g, x].item() for x in range(K))
                  for j in keys]  # fmt: skip
        total = sum(map(exp, scores))
        if keys:
            lse[b, i, h] = log(total)
        for j, score in zip(keys, scores, strict=True):
            o[b, i, h] += exp(score) / total * v[b, j, g]
    return o, lse


# --- the definition -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_is_its_definition(shape):
    B, T, S, H, _, K, _ = shape
    q, k, v = tensors(*shape)
    mask = torch.rand(B, H, T, S, generator=torch.Generator().manual_seed(1)) < 0.6
    for causal, masked, scale in product((False, True), (False, True), (None, 0.3)):

        def sees(b, h, i, j, causal=causal, masked=masked):
            return (not causal or j <= i + S - T) and (not masked or bool(mask[b, h, i, j]))

        got = attention(q, k, v, causal, scale, mask if masked else None, lse=True)
        torch.testing.assert_close(got, by_definition(q, k, v, sees, scale or K**-0.5))
        assert torch.equal(attention(q, k, v, causal, scale, mask if masked else None), got[0])


def test_attention_is_torchs():
    q, k, v = tensors(2, 33, 65, 6, 2, 16, 24)
    theirs = [x.transpose(1, 2) for x in (q, k, v)]
    want = scaled_dot_product_attention(*theirs, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(attention(q, k, v), want)


@pytest.mark.parametrize("shape", [(5, 7), (1, 1, 5, 7), (2, 1, 1, 7), (1, 4, 5, 1), (7,), ()])
def test_a_mask_spreads(shape):
    q, k, v = tensors(2, 5, 7, 4, 2, 3, 6)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.7
    want = attention(q, k, v, mask=mask.expand(2, 4, 5, 7), lse=True)
    torch.testing.assert_close(attention(q, k, v, mask=mask, lse=True), want, rtol=0, atol=0)


def test_a_row_without_keys_is_zero_and_its_log_sum_exp_is_minus_infinity():
    q, k, v = tensors(1, 7, 4, 2, 1, 3, 5, grad=True)
    o, lse = attention(q, k, v, causal=True, lse=True)  # the first three see nothing
    assert torch.equal(o[:, :3], torch.zeros_like(o[:, :3]))
    assert torch.equal(lse[:, :3], torch.full_like(lse[:, :3], -inf))
    assert lse[:, 3:].isfinite().all()
    o.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert torch.equal(q.grad[:, :3], torch.zeros_like(q[:, :3]))
    nothing = torch.zeros(7, 4, dtype=torch.bool)
    o, lse = attention(q, k, v, mask=nothing, lse=True)
    assert not o.any() and (lse == -inf).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_computed_in_single(dtype):
    q, k, v = tensors(2, 33, 65, 4, 2, 16, 24, dtype)
    o, lse = attention(q, k, v, causal=True, lse=True)
    assert (o.dtype, lse.dtype) == (dtype, torch.float32)
    exact, exact_lse = attention(q.double(), k.double(), v.double(), causal=True, lse=True)
    assert exact_lse.dtype == torch.float64
    torch.testing.assert_close(o.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-6)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-6)


def test_large_scores_do_not_overflow():
    q, k, v = tensors(1, 3, 5, 1, 1, 4, 4)
    o, lse = attention(q * 1e3, k * 1e3, v, lse=True)
    assert o.isfinite().all() and lse.isfinite().all() and lse.abs().max() > 1e5
    o, lse = attention((q * 1e2).half(), (k * 1e2).half(), v.half(), lse=True)
    assert o.isfinite().all() and lse.isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES[1:3])
def test_gradients(shape, causal):
    B, T, S, H, *_ = shape
    mask = torch.rand(B, H, T, S, generator=torch.Generator().manual_seed(3)) < 0.7
    inputs = tensors(*shape, grad=True)

    def finite(q, k, v):
        o, lse = attention(q, k, v, causal, 0.4, mask, lse=True)
        return o, lse.masked_fill(lse == -inf, 0)

    assert gradcheck(finite, inputs)


def test_strides_do_not_matter():
    q, k, v = tensors(2, 5, 7, 4, 2, 3, 6)
    want = attention(q, k, v, causal=True)
    others = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k)]
    others.append(torch.stack((v, v), -1).flatten(-2)[..., ::2])
    assert not any(x.is_contiguous() for x in others)
    torch.testing.assert_close(attention(*others, causal=True), want)


FORMS = {
    "attention": lambda q, k, v: attention(q, k, v, causal=True),
    "naive": lambda q, k, v: tiled.naive(q, k, v, Sram(10**6), 2, 3, causal=True),
    "fa1": lambda q, k, v: tiled.fa1(q, k, v, Sram(10**6), 2, 3, causal=True)[0],
    "fa2": lambda q, k, v: tiled.fa2(q, k, v, Sram(10**6), 2, 3, causal=True)[0],
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda q, k, v: (q, k[:, :, 0], v), "k has shape"),
        (lambda q, k, v: (q, k.float(), v), "k is float32, must be as q, float64"),
        (lambda q, k, v: (q, k.to("meta"), v), "k is on meta, must be where q is, on cpu"),
        (lambda q, k, v: (q, k, v[:, :0]), "v has shape .*, each of at least 1"),
        (lambda q, k, v: (q[:, :, :3], k, v), "k has 2 heads, must be a number that divides q's 3"),
        (lambda q, k, v: (q, k, v.tolist()), "v is a list, must be a tensor"),
    ],
)
def test_every_form_says_what_is_wrong(wrong, message):
    inputs = wrong(*tensors(2, 5, 7, 4, 2, 3, 6))
    for form in FORMS.values():
        with pytest.raises(ValueError, match=message):
            form(*inputs)
    with pytest.raises(ValueError, match="mask is float32, must be bool"):
        attention(*tensors(1, 2, 2, 1, 1, 1, 1), mask=torch.ones(2, 2))
    with pytest.raises(ValueError, match="scale is -1, must be a finite number above 0"):
        attention(*tensors(1, 2, 2, 1, 1, 1, 1), scale=-1)


# --- merging parts --------------------------------------------------------------------------------


def parts(q, k, v, ends, **choices):
    """Attention over each stretch of keys, in turn."""
    starts = (0, *ends[:-1])
    return [
        attention(q, k[:, a:b], v[:, a:b], lse=True, **choices)
        for a, b in zip(starts, ends, strict=True)
    ]


def test_parts_merge_to_the_whole_in_any_order():
    q, k, v = tensors(2, 5, 9, 4, 2, 3, 6)
    want = attention(q, k, v, lse=True)
    a, b, c = parts(q, k, v, (2, 3, 9))
    for x, y, z in ((a, b, c), (c, a, b), (b, c, a)):
        torch.testing.assert_close(merge(*merge(*x, *y), *z), want)
        torch.testing.assert_close(merge(*x, *merge(*y, *z)), want)


def test_merging_keeps_the_dtypes_and_survives_large_sums():
    q, k, v = tensors(1, 5, 9, 4, 2, 3, 6, torch.float16)
    (o1, lse1), (o2, lse2) = parts(q, k, v, (4, 9))
    o, lse = merge(o1, lse1, o2, lse2)
    assert (o.dtype, lse.dtype) == (torch.float16, torch.float32)
    far, far_lse = merge(o1, lse1 + 1e4, o2, lse2 + 1e4)
    torch.testing.assert_close((far, far_lse), (o, lse + 1e4), rtol=2e-3, atol=2e-3)


def test_a_part_that_has_seen_nothing_does_not_count():
    (o1, lse1), (o2, lse2) = parts(*tensors(1, 5, 9, 4, 2, 3, 6), (4, 9))
    empty, nothing = torch.full_like(o1, nan), torch.full_like(lse1, -inf)
    torch.testing.assert_close(merge(o1, lse1, empty, nothing), (o1, lse1), rtol=0, atol=0)
    torch.testing.assert_close(merge(empty, nothing, o2, lse2), (o2, lse2), rtol=0, atol=0)
    o, lse = merge(empty, nothing, empty, nothing)
    assert not o.any() and (lse == -inf).all()


def test_merge_has_gradients():
    inputs = [x.detach().requires_grad_() for part in parts(*tensors(1, 2, 5, 2, 2, 3, 2), (2, 5))
              for x in part]  # fmt: skip
    assert gradcheck(merge, inputs)
    o, lse = merge(inputs[0], torch.full_like(inputs[1], -inf), *inputs[2:])
    (o.sum() + lse.sum()).backward()
    assert all(x.grad is None or x.grad.isfinite().all() for x in inputs)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda o, lse: (o, lse, o, lse[:, 1:]), r"lse2 has shape \[1, 1, 3\], must be \[1, 2, 3"),
        (lambda o, lse: (o, lse, o[..., 1:], lse), r"o2 has shape \[1, 2, 3, 3\], must be \[1, 2"),
        (lambda o, lse: (o, o, o, lse), "lse1 has shape"),
        (lambda o, lse: (o, lse, o.half(), lse), "o2 is torch.float16 on cpu, must be torch.float"),
        (lambda o, lse: (o, lse, o, lse.double()), "lse2 is torch.float64 on cpu, must be torch"),
        (lambda o, lse: (o, lse, o, lse.to("meta")), "lse2 is torch.float32 on meta, must be"),
        (lambda o, lse: (o.int(), lse, o, lse), "o1 is torch.int32, must be a tensor of floating"),
        (lambda o, lse: (o, 0.5, o, lse), "lse1 is float, must be a tensor of floating"),
    ],
)
def test_parts_that_do_not_fit_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        merge(*wrong(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3)))


# --- tiles ----------------------------------------------------------------------------------------

TILED = ("naive", "fa1", "fa2")
CUTS = [  # T, S, tile_q, tile_k
    (1, 1, 1, 1),
    (5, 7, 2, 3),
    (7, 5, 3, 2),
    (9, 9, 4, 4),
    (13, 4, 3, 3),
    (4, 13, 16, 5),
    (6, 11, 1, 16),
]


def run(order, q, k, v, sram, *choices, **named):
    """What an order gives: o, and then nothing, or m and the sums, or the log-sum-exp."""
    got = getattr(tiled, order)(q, k, v, sram, *choices, **named)
    return (got,) if order == "naive" else got


@pytest.mark.parametrize("order", TILED)
@pytest.mark.parametrize(("T", "S", "tile_q", "tile_k"), CUTS)
def test_tiles_equal_the_reference_and_move_what_the_plan_says(order, T, S, tile_q, tile_k):
    for causal, (K, V, size) in product((False, True), ((3, 6, 4), (5, 2, 8))):
        dtype = {4: torch.float32, 8: torch.float64}[size]
        q, k, v = tensors(1, T, S, 2, 1, K, V, dtype)
        sram = Sram(10**6)
        o, *rows = run(order, q, k, v, sram, tile_q, tile_k, causal=causal)
        want, want_lse = attention(q, k, v, causal=causal, lse=True)
        torch.testing.assert_close(o, want)
        if rows:
            lse = rows[0] if order == "fa2" else rows[0] + rows[1].log()
            torch.testing.assert_close(lse, want_lse)
        read, written = traffic(T, S, K, V, size, tile_q, tile_k, order, causal)
        assert (sram.read_bytes, sram.written_bytes) == (2 * read, 2 * written)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("order", TILED)
def test_tiles_in_half_precision(order, dtype):
    q, k, v = tensors(1, 13, 17, 2, 1, 8, 6, dtype)
    sram = Sram(10**6)
    o, *_ = run(order, q, k, v, sram, 4, 5, causal=True)
    assert o.dtype == dtype
    exact = attention(q.double(), k.double(), v.double(), causal=True)
    # FlashAttention-1 rounds its output at every visit, naive attention its scores.
    atol = {"naive": 16, "fa1": 4, "fa2": 1}[order] * torch.finfo(dtype).eps
    torch.testing.assert_close(o.double(), exact, rtol=torch.finfo(dtype).eps, atol=atol)
    read, written = traffic(13, 17, 8, 6, 2, 4, 5, order, causal=True)
    assert (sram.read_bytes, sram.written_bytes) == (2 * read, 2 * written)


@pytest.mark.parametrize("order", ["fa1", "fa2"])
def test_tiles_fill_the_memory_that_the_plan_says_and_overflow_one_byte_less(order):
    for tile_q, tile_k, (K, V), causal, dtype in product(
        (2, 7), (3, 8), ((1, 4), (7, 2)), (False, True), (torch.float, torch.double)
    ):
        q, k, v = tensors(1, 2 * tile_q + 1, 2 * tile_k + 1, 1, 1, K, V, dtype)
        most = footprint(tile_q, tile_k, K, V, dtype.itemsize, order, causal)
        sram = Sram(most)
        run(order, q, k, v, sram, tile_q, tile_k, causal=causal)
        assert (sram.peak, sram.used) == (most, 0)
        with pytest.raises(SramOverflow):
            run(order, q, k, v, Sram(most - 1), tile_q, tile_k, causal=causal)


def test_the_planned_tiles_run_in_their_budget_and_naive_attention_does_not():
    q, k, v = tensors(1, 5, 1100, 1, 1, 16, 16, torch.float32)
    budget = 4096
    for order in ("fa1", "fa2"):
        cut = tiles(budget, 16, 16, 4, order)
        o, *_ = run(order, q, k, v, Sram(budget), *cut)
        torch.testing.assert_close(o, attention(q, k, v))
    o = tiled.naive(q, k, v, Sram(1100 * 4 + 100), 5, 16)  # room for one row, and no second
    torch.testing.assert_close(o, attention(q, k, v))
    with pytest.raises(SramOverflow, match=r"load of \[1100\] asks for"):
        tiled.naive(q, k, v, Sram(budget), 5, 16)


def test_only_naive_attention_keeps_the_matrix():
    q, k, v = tensors(1, 50, 70, 1, 1, 4, 4, torch.float32)
    peaks = {}
    for order in TILED:
        with live() as held:
            run(order, q, k, v, Sram(9000), 16, 16)
        peaks[order] = held.peak
    matrix = 50 * 70 * 4
    assert peaks["naive"] > matrix > 2 * max(peaks["fa1"], peaks["fa2"])


class Counted(TorchDispatchMode):
    """The FLOPs that run, sorted as weft.plan.attention.work sorts them."""

    def __init__(self):
        super().__init__()
        self.matmul = self.exponentials = self.other = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        if name in ("mm", "addmm"):
            self.matmul += 2 * args[-2].numel() * args[-1].shape[1]
        elif name in ("exp", "log"):
            self.exponentials += result.numel()
        elif name in ("add", "sub", "mul", "div", "maximum"):
            self.other += result.numel()
        elif name in ("amax", "sum"):
            self.other += args[0].numel()
        return result


@pytest.mark.parametrize("order", TILED)
@pytest.mark.parametrize(("T", "S", "tile_q", "tile_k"), CUTS)
def test_tiles_do_the_arithmetic_that_the_plan_says(order, T, S, tile_q, tile_k):
    for causal in (False, True):
        q, k, v = tensors(1, T, S, 1, 1, 3, 6)
        with Counted() as counted:
            run(order, q, k, v, Sram(10**6), tile_q, tile_k, causal=causal)
        want = operations(T, S, 3, 6, tile_q, tile_k, order, causal)
        assert (counted.matmul, counted.exponentials, counted.other) == want


@pytest.mark.parametrize("order", TILED)
def test_tiles_take_a_scale_and_whole_tiles_only(order):
    q, k, v = tensors(1, 5, 7, 2, 1, 3, 4)
    o, *_ = run(order, q, k, v, Sram(10**6), 2, 3, scale=0.25)
    torch.testing.assert_close(o, attention(q, k, v, scale=0.25))
    with pytest.raises(ValueError, match="tile_k is 0, must be a whole number of at least 1"):
        run(order, q, k, v, Sram(10**6), 2, 0)
    with pytest.raises(ValueError, match="sram is a int, must be a tile memory"):
        run(order, q, k, v, 10**6, 2, 3)


# --- backward in tiles ----------------------------------------------------------------------------


def gradients(q, k, v, do, **choices):
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    return torch.autograd.grad(attention(q, k, v, **choices), (q, k, v), do)


@pytest.mark.parametrize(("T", "S", "tile_q", "tile_k"), CUTS)
def test_backward_equals_autograd_and_moves_what_the_plan_says(T, S, tile_q, tile_k):
    for causal, (H, G) in ((False, (3, 1)), (True, (4, 2))):
        q, k, v = tensors(1, T, S, H, G, 3, 6)
        do = torch.randn(1, T, H, 6, generator=torch.Generator().manual_seed(4)).double()
        o, lse = tiled.fa2(q, k, v, Sram(10**6), tile_q, tile_k, causal)
        sram = Sram(10**6)
        got = backward(q, k, v, o, lse, do, sram, tile_q, tile_k, causal)
        torch.testing.assert_close(got, gradients(q, k, v, do, causal=causal))
        read, written = backward_traffic(T, S, 3, 6, 8, tile_q, tile_k, causal, H // G)
        assert (sram.read_bytes, sram.written_bytes) == (G * read, G * written)


def test_backward_is_the_same_every_time_and_keeps_no_matrix():
    q, k, v = tensors(1, 50, 70, 1, 1, 4, 4, torch.float32)
    o, lse = tiled.fa2(q, k, v, Sram(10**6), 16, 16, scale=0.7)
    runs = []
    for _ in range(2):
        with live() as held:
            runs.append(backward(q, k, v, o, lse, o, Sram(5000), 16, 16, scale=0.7))
        assert 2 * held.peak < 50 * 70 * 4
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    torch.testing.assert_close(runs[0], gradients(q, k, v, o, scale=0.7))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lse": torch.zeros(1, 5, 2)}, r"lse is \[1, 5, 2\], torch.float32, must be \[1, 5, 2\]"),
        (
            {"do": torch.zeros(1, 5, 2, 3).double()},
            r"do is \[1, 5, 2, 3\], .* must be \[1, 5, 2, 4",
        ),
        ({"o": None}, "o is NoneType, must be"),
    ],
)
def test_backward_names_what_does_not_fit(changed, message):
    q, k, v = tensors(1, 5, 7, 2, 1, 3, 4)
    o, lse = tiled.fa2(q, k, v, Sram(10**6), 2, 3)
    given = {"o": o, "lse": lse, "do": o} | changed
    with pytest.raises(ValueError, match=message):
        backward(q, k, v, **given, sram=Sram(10**6), tile_q=2, tile_k=3)
