"""Chunked linear attention against float64: every rule, every gradient, odd sizes, bad input.

Without a GPU all of it runs in Triton's interpreter, in chunks and tiles so small that there are
several.
"""

import math
from functools import partial
from typing import NamedTuple

import pytest
import torch

from weft.kernels import retention
from weft.kernels.linear import chunked, differentiable, fused, gated, launch
from weft.kernels.linear.tuned import ChunkTile
from weft.ref import linear as plain_ref
from weft.ref import retention as retention_ref
from weft.ref.linear import gated as gated_ref

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
NEAR = {SINGLE: 1e-5, HALF: 2e-3, BRAIN: 1.6e-2}  # of the largest number of a tensor
INF = math.inf


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch, request):
    """Several tiles in each direction, also where a tile is interpreted."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(launch, "tile", lambda *_: ChunkTile(16, 32))


class Case(NamedTuple):
    """Sizes, and how many dims the decay of a token and head has: None for no decay at all."""

    T: int
    H: int
    K: int
    V: int
    decay: int | None
    chunk: int
    dtype: torch.dtype
    B: int = 1


def drawn(case, seed=0, low=1.0):
    """q, k, v, the decays with a reset in places, and the initial state."""
    dice = torch.Generator().manual_seed(seed)
    B, T, H, K, V = case.B, *case[:4]
    q, k, v = (torch.randn(B, T, H, n, generator=dice) for n in (K, K, V))
    state = torch.randn(B, H, K, V, generator=dice).to(DEVICE)
    given = [x.to(DEVICE, case.dtype) for x in (q, k, v)]
    if case.decay is not None:
        g = -low * torch.rand(B, T, H, *[K] * case.decay, generator=dice)
        if T > 2:
            g[:, T // 3, 0] = -INF
            g[:, T // 2, -1, ...] = -1e30
        given.append(g.to(DEVICE))
    return [*given, state]


def answers(form, given, seed=1, **how):
    """o, the last state, and the gradients of all that is given."""
    given = [x.detach().requires_grad_() for x in given]
    o, last = form(*given[:-1], initial=given[-1], final=True, **how)
    dice = torch.Generator().manual_seed(seed)
    do, dlast = (torch.randn(x.shape, generator=dice).to(x) for x in (o, last))
    grads = torch.autograd.grad((o, last), given, (do, dlast))
    return [x.detach() for x in (o, last, *grads)]


def close(got, right, dtype, name=""):
    assert got.shape == right.shape and got.isfinite().all(), name
    far = (got.double() - right).abs().max() if right.numel() else 0
    assert far <= NEAR[dtype] * max(1e-30, right.abs().max().item()), name


def compare(form, reference, given, dtype, chunk):
    exact = answers(reference, [x.double() for x in given], chunk=chunk)
    ours = answers(form, given, chunk=chunk)
    names = ["o", "last", "dq", "dk", "dv", "dg", "dinitial"]
    names = names if len(ours) == len(names) else [n for n in names if n != "dg"]
    for name, got, right in zip(names, ours, exact, strict=True):
        close(got, right, dtype, name)
    assert ours[0].dtype == dtype and ours[1].dtype == SINGLE
    assert [x.dtype for x in ours[2:]] == [x.dtype for x in given]


CASES = [  # T, H, K, V, decay, chunk, dtype
    Case(37, 2, 20, 40, 0, 16, SINGLE),
    Case(33, 1, 33, 17, 0, 32, BRAIN, 2),
    Case(21, 2, 16, 33, 0, 5, HALF),
    Case(37, 2, 20, 40, 1, 16, SINGLE),
    Case(33, 1, 33, 17, 1, 32, BRAIN, 2),
    Case(21, 2, 16, 33, 1, 5, HALF),
    Case(1, 1, 1, 1, 0, 16, SINGLE),
    Case(1, 1, 1, 1, 1, 16, SINGLE),
]


def names(case):
    return "-".join(str(x).removeprefix("torch.") for x in case)


@pytest.mark.parametrize("case", CASES, ids=names)
def test_a_gate_fades_the_state_and_has_its_gradients(case):
    compare(gated.chunked, gated_ref.chunked, drawn(case), case.dtype, case.chunk)


@pytest.mark.parametrize("dtype", [SINGLE, BRAIN, HALF])
def test_the_first_version_says_the_same(dtype):
    case = Case(21, 2, 17, 40, 0, 16, dtype)
    *given, state = drawn(case)
    for g in (given[3], None):
        how = given[:3] + [g, state, case.chunk]
        for got, right in zip(
            differentiable(*how, fused.forward), differentiable(*how), strict=True
        ):
            close(got, right.double(), dtype)
    by_channel = given[3].unsqueeze(-1).expand(given[0].shape)
    with pytest.raises(ValueError, match="log_decay has a number for each channel"):
        differentiable(*given[:3], by_channel, state, 16, fused.forward)


@pytest.mark.parametrize(("decay", "dtype"), [(None, BRAIN), ([0.5, 1.0, 1e-3], SINGLE)])
def test_retention_is_a_gate_of_constants(decay, dtype):
    given = drawn(Case(21, 3, 17, 20, None, 16, dtype))
    forms = (partial(one.chunked, decay=decay) for one in (retention, retention_ref))
    compare(*forms, given, dtype, 16)


@pytest.mark.parametrize(
    ("feature", "dtype"),
    [("elu", BRAIN), ("relu", HALF), ("identity", SINGLE), (torch.square, SINGLE)],
)
def test_linear_attention_without_a_normaliser(feature, dtype):
    how = {"feature": feature, "normalize": False}
    forms = (partial(one, **how) for one in (chunked, plain_ref.chunked))
    compare(*forms, drawn(Case(35, 1, 17, 20, None, 16, dtype)), dtype, 16)


def normalised(form, given, **how):
    """As `answers`, with the two parts of the state in one tensor."""

    def joined(q, k, v, initial, final, **how):
        o, (S, z) = form(q, k, v, initial=(initial[..., :-1], initial[..., -1]), final=True, **how)
        return o, torch.cat([S, z.unsqueeze(-1)], -1)

    *rest, state = given
    z = torch.ones_like(state[..., :1])
    return answers(joined, [*rest, torch.cat([state, z], -1)], **how)


@pytest.mark.parametrize("dtype", [SINGLE, BRAIN, HALF])
def test_linear_attention_divides_by_its_sum(dtype):
    given = drawn(Case(35, 2, 17, 20, None, 16, dtype))
    exact = normalised(plain_ref.chunked, [x.double() for x in given], chunk=16)
    for got, right in zip(normalised(chunked, given, chunk=16), exact, strict=True):
        close(got, right, dtype)


def test_its_features_are_rounded_once():
    x = torch.linspace(-9, 3, 256).to(DEVICE, BRAIN).view(1, 1, 1, 256)
    _, state = chunked(x, x, torch.ones_like(x[..., :1]), normalize=False, final=True)
    f = torch.nn.functional.elu(x.double()) + 1
    torch.testing.assert_close(state.double().view_as(f), f, rtol=2**-8, atol=0)


# --- what a caller may rely on --------------------------------------------------------------------

FORMS = {
    "plain": lambda q, k, v, g, **how: chunked(q, k, v, "identity", normalize=False, **how),
    "head": lambda q, k, v, g, **how: gated.chunked(q, k, v, g[..., 0], **how),
    "channel": gated.chunked,
    "retention": lambda q, k, v, g, **how: retention.chunked(q, k, v, **how),
}


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_left_of_what_was_seen_in_no_time(form):
    *given, state = drawn(Case(0, 2, 3, 5, 1, 16, HALF, 2))
    for x in (*given, state):
        x.requires_grad_()
    o, last = FORMS[form](*given, final=True)
    assert o.shape == (2, 0, 2, 5) and o.dtype == HALF
    assert last.shape == (2, 2, 3, 5) and last.dtype == SINGLE and not last.any()
    o, last = FORMS[form](*given, initial=state, final=True)
    assert torch.equal(last, state)
    (back,) = torch.autograd.grad(last.sum(), [state])
    assert torch.equal(back, torch.ones_like(state))


@pytest.mark.parametrize("form", FORMS)
def test_a_sequence_goes_on_from_its_state_whatever_the_chunks(form):
    *given, state = drawn(Case(21, 1, 16, 16, 1, 16, SINGLE))
    o, last = FORMS[form](*given, initial=state, final=True)
    for cut, chunk in ((7, 1), (16, 13), (20, 100)):
        first, middle = FORMS[form](
            *(x[:, :cut] for x in given), initial=state, final=True, chunk=chunk
        )
        rest, end = FORMS[form](
            *(x[:, cut:] for x in given), initial=middle, final=True, chunk=chunk
        )
        torch.testing.assert_close(torch.cat([first, rest], 1), o, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(end, last, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["head", "channel"])
@pytest.mark.parametrize("reset", [-INF, -1e30, -200.0])
def test_a_gate_that_closes_forgets_all_that_was_before_and_nothing_after(form, reset):
    case = Case(21, 1, 16, 16, 1, 16, SINGLE)
    *given, state = drawn(case)
    *others, _ = drawn(case, seed=5)
    given[3] = given[3].clamp(min=-1)
    given[3][:, 9] = reset
    given[3].requires_grad_()
    mixed = [torch.cat([b[:, :9], a[:, 9:]], 1) for a, b in zip(given, others, strict=True)]
    how = {"chunk": 16, "final": True}
    (o, last), (o_mixed, last_mixed) = (
        FORMS[form](*x, initial=state, **how) for x in (given, mixed)
    )
    torch.testing.assert_close(o_mixed[:, 9:], o[:, 9:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(last_mixed, last, rtol=1e-4, atol=1e-4)
    (dg,) = torch.autograd.grad(o.sum() + last.sum(), [given[3]])
    assert dg.isfinite().all() and not dg[:, 9].any()


@pytest.mark.parametrize("form", ["head", "channel"])
@pytest.mark.parametrize("low", [0.0, 1e-4, 5.0, 100.0])
def test_no_decay_is_too_strong_or_too_weak(form, low):
    given = drawn(Case(35, 1, 16, 16, 1, 32, SINGLE))
    dice = torch.Generator().manual_seed(3)
    given[3] = (-low * torch.rand(given[3].shape, generator=dice)).to(DEVICE)
    reference = gated_ref.chunked
    if form == "head":
        reference = lambda q, k, v, g, **how: gated_ref.chunked(q, k, v, g[..., 0], **how)  # noqa: E731
    exact = answers(reference, [x.double() for x in given], chunk=32)
    for got, right in zip(answers(FORMS[form], given, chunk=32), exact, strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got.double(), right, rtol=1e-3, atol=1e-4)


def test_a_state_may_be_larger_than_the_largest_fp16():
    q, k, v = (torch.full((1, 40, 1, 16), x, dtype=HALF) for x in (1e-3, 100.0, 100.0))
    inputs = [x.to(DEVICE).requires_grad_() for x in (q, k, v)]
    o, last = chunked(*inputs, "identity", normalize=False, final=True, chunk=16)
    assert last.min() == 4e5
    right = 16 * 1e-3 * 1e4 * torch.arange(1, 41).view(1, 40, 1, 1).expand_as(o)
    torch.testing.assert_close(o.cpu().double(), right.double(), rtol=2e-3, atol=0)
    k = torch.full((1, 40, 1, 16), 1000.0, dtype=HALF, device=DEVICE)
    even = chunked(k, k, v.to(DEVICE), chunk=16)
    torch.testing.assert_close(even, v.to(DEVICE))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wanted", range(5))
def test_a_gradient_may_be_asked_for_alone(form, wanted):
    given = drawn(Case(18, 1, 16, 16, 1, 16, SINGLE))
    if wanted == 3 and form not in ("head", "channel"):
        return
    whole = [x.detach().requires_grad_(form in ("head", "channel") or i != 3)
             for i, x in enumerate(given)]  # fmt: skip
    alone = [x.detach().requires_grad_(i == wanted) for i, x in enumerate(given)]
    o = FORMS[form](*whole[:-1], initial=whole[-1], chunk=16)
    every = torch.autograd.grad(o.sum(), [x for x in whole if x.requires_grad])
    right = dict(zip([i for i, x in enumerate(whole) if x.requires_grad], every, strict=True))
    o = FORMS[form](*alone[:-1], initial=alone[-1], chunk=16)
    assert torch.equal(torch.autograd.grad(o.sum(), [alone[wanted]])[0], right[wanted])


@pytest.mark.parametrize("form", ["head", "channel"])
def test_the_last_state_alone_has_gradients(form):
    given = [x.requires_grad_() for x in drawn(Case(18, 1, 16, 16, 1, 16, SINGLE))]
    o, last = FORMS[form](*given[:-1], initial=given[-1], final=True, chunk=16)
    of_last = torch.autograd.grad(last.sum(), given, retain_graph=True)
    of_o = torch.autograd.grad(o.sum(), given, retain_graph=True)
    of_both = torch.autograd.grad(last.sum() + o.sum(), given)
    assert not of_last[0].any()
    for a, b, c in zip(of_last, of_o, of_both, strict=True):
        torch.testing.assert_close(a + b, c, rtol=1e-4, atol=1e-4)


def test_a_second_derivative_is_refused():
    q, k, v, *_ = (x.requires_grad_() for x in drawn(Case(3, 1, 16, 16, None, 16, SINGLE)))
    (dq,) = torch.autograd.grad(retention.chunked(q, k, v).sum(), [q], create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        dq.sum().backward()


# --- memory ---------------------------------------------------------------------------------------


def apart(x, layout):
    """The same numbers, lying otherwise."""
    if layout == "heads first":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "column by column":
        return x.transpose(1, -1).contiguous().transpose(1, -1)
    if layout == "in a margin":  # of NaN, and misaligned
        room = x.new_full([n + 3 for n in x.shape], math.nan)
        return room[tuple(slice(1, n + 1) for n in x.shape)].copy_(x)
    return x[:, :1].expand_as(x)  # "one row for all"


@pytest.mark.parametrize(
    ("layout", "decay"),
    [("heads first", 1), ("column by column", 0), ("in a margin", 1), ("one row for all", 0)],
)
def test_strides_and_margins_do_not_matter(layout, decay):
    given = drawn(Case(18, 1, 17, 20, decay, 16, HALF, 2))
    moved = [apart(x, layout) for x in given]
    right = answers(gated.chunked, [x.contiguous() for x in moved], chunk=16)
    for one, other in zip(answers(gated.chunked, moved, chunk=16), right, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("decay", [0, 1])
def test_all_of_the_result_is_written_and_nothing_beside_it(decay, monkeypatch):
    """Results lie in a margin that must stay as it was, and are NaN until they are written."""
    given = drawn(Case(19, 1, 20, 33, decay, 16, SINGLE))
    right = answers(gated.chunked, given, chunk=16)
    rooms = []

    def new_empty(x, *shape, dtype=None, **_):
        shape = shape[0] if isinstance(shape[0], torch.Size) else shape
        n = math.prod(shape)
        room = torch.full([n + 2 * 4096], math.nan, dtype=dtype or x.dtype, device=x.device)
        rooms.append((room, n))
        return room[4096 : 4096 + n].view(shape)

    monkeypatch.setattr(torch.Tensor, "new_empty", new_empty)
    got = answers(gated.chunked, given, chunk=16)
    monkeypatch.undo()
    assert all(torch.equal(a, b) for a, b in zip(got, right, strict=True))
    assert len(rooms) >= 10 and all(
        room[:4096].isnan().all() and room[4096 + n :].isnan().all() for room, n in rooms
    )


# --- what is refused ------------------------------------------------------------------------------


def qkv(dtype=SINGLE, K=3, V=4):
    return [torch.ones(1, 7, 2, n, dtype=dtype, device=DEVICE) for n in (K, K, V)]


def same(q, value=-1.0):
    return torch.full(q.shape[:3], value, device=DEVICE)


WRONG = {
    "q has shape [2, 3], must be a tensor [B, T, H, K], each": lambda q, k, v: chunked(
        q[0, :2, 0], k, v
    ),
    "k has shape [1, 7, 2, 2], must be [1, 7, 2, 3]": lambda q, k, v: chunked(q, k[..., :2], v),
    "v has shape [1, 6, 2, 4], must be [1, 7, 2, 4]": lambda q, k, v: retention.chunked(
        q, k, v[:, 1:]
    ),
    "v is float16, must be float32": lambda q, k, v: gated.chunked(q, k, v.half(), same(q)),
    "k is on meta, must be where q is": lambda q, k, v: chunked(q, k.to("meta"), v),
    "feature is 'softmax', must be elu, relu, identity or": lambda q, k, v: chunked(
        q, k, v, "softmax"
    ),
    "chunk is 0": lambda q, k, v: chunked(q, k, v, chunk=0),
    "chunk is 129, must be at most 128 for a kernel": lambda q, k, v: gated.chunked(
        q, k, v, same(q), chunk=129
    ),
    "causal is False, must be true here": lambda q, k, v: chunked(q, k, v, causal=False),
    "initial is a Tensor, must be a pair": lambda q, k, v: chunked(q, k, v, initial=q),
    "initial has shape [1, 7, 2, 3], must be [1, 2, 3, 4]": lambda q, k, v: gated.chunked(
        q, k, v, same(q), initial=q
    ),
    "initial is bfloat16, must be float32": lambda q, k, v: retention.chunked(
        q, k, v, initial=q.new_ones(1, 2, 3, 4).bfloat16()
    ),
    "initial[1] has shape [1, 2, 4], must be [1, 2, 3]": lambda q, k, v: chunked(
        q, k, v, initial=(q.new_ones(1, 2, 3, 4), q.new_ones(1, 2, 4))
    ),
    "log_decay is a float, must be a tensor": lambda q, k, v: gated.chunked(q, k, v, -1.0),
    "log_decay has shape [1, 7], must be [1, 7, 2] or [1, 7, 2, 3]": lambda q, k, v: gated.chunked(
        q, k, v, same(q)[..., 0]
    ),
    "decay has 1.5, must lie in (0, 1]": lambda q, k, v: retention.chunked(q, k, v, [0.5, 1.5]),
    "decay has 1 numbers, must have one for each": lambda q, k, v: retention.chunked(
        q, k, v, [0.5]
    ),
    "q is float64, must be float16, bfloat16 or float32": lambda q, k, v: chunked(
        q.double(), k.double(), v.double()
    ),
    "q has width 257, must be at most 256": lambda q, k, v: retention.chunked(*qkv(K=257)),
    "v has width 257, must be at most 256": lambda q, k, v: chunked(*qkv(V=257)),
}
LOOKED = {
    "log_decay has 0.5, must lie between -inf and 0.0": 0.5,
    "log_decay has nan, must lie": math.nan,
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_argument_is_named(said):
    with pytest.raises(ValueError) as caught:
        WRONG[said](*qkv())
    assert str(caught.value).startswith(said)


@pytest.mark.skipif(CUDA, reason="on a GPU no decay is looked at")
@pytest.mark.parametrize("said", LOOKED)
def test_a_wrong_decay_is_named(said):
    q, k, v = qkv()
    with pytest.raises(ValueError) as caught:
        gated.chunked(q, k, v, same(q, LOOKED[said]))
    assert str(caught.value).startswith(said)


# --- on a GPU, at the tuned tiles -----------------------------------------------------------------

LARGE = [
    Case(1000, 4, 128, 128, 0, 64, BRAIN, 2),
    Case(1023, 4, 64, 64, 0, 64, HALF, 2),
    Case(777, 2, 256, 256, 0, 64, BRAIN),
    Case(640, 2, 80, 200, 0, 128, BRAIN),
    Case(300, 2, 128, 128, 0, 64, SINGLE),
    Case(1000, 4, 128, 128, 1, 64, BRAIN, 2),
    Case(1023, 4, 64, 64, 1, 64, HALF, 2),
    Case(777, 2, 256, 256, 1, 64, BRAIN),
    Case(640, 2, 80, 200, 1, 128, BRAIN),
    Case(300, 2, 128, 128, 1, 64, SINGLE),
]


@pytest.mark.gpu
@pytest.mark.parametrize("case", LARGE, ids=names)
def test_tuned_tiles_are_right_and_give_the_same_bits_twice(case):
    given = drawn(case)
    compare(gated.chunked, gated_ref.chunked, given, case.dtype, case.chunk)
    first, second = (answers(gated.chunked, given, chunk=case.chunk) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [SINGLE, BRAIN, HALF])
def test_tuned_tiles_are_right_without_a_gate_and_with_constants(dtype):
    given = drawn(Case(1000, 4, 128, 64, None, 64, dtype, 2))
    compare(retention.chunked, retention_ref.chunked, given, dtype, 64)
    exact = normalised(plain_ref.chunked, [x.double() for x in given], chunk=64)
    for got, right in zip(normalised(chunked, given, chunk=64), exact, strict=True):
        close(got, right, dtype)


@pytest.mark.gpu
def test_more_than_two_to_the_31_elements():
    T, H, K = 2**20 + 3, 32, 64
    q, k, v = (torch.randn(1, T, H, K, device="cuda", dtype=BRAIN) for _ in range(3))
    assert q.numel() > 2**31
    o = retention.chunked(q, k, v)
    few = [x[:, -500:, :1] for x in (q, k, v)]  # nothing older is left in the first head
    exact = retention_ref.chunked(*(x.double() for x in few), decay=[1 - 2**-5])
    close(o[:, -100:, :1], exact[:, -100:], BRAIN)
