"""The fused layers against their references in float64: odd sizes, gradients, bytes, bad input."""

from importlib import import_module

import pytest
import torch
from test_tensor_ref import WRONG
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from weft.kernels import compile_for, tensor
from weft.kernels.tensor import VERSIONS, norm
from weft.plan.tensor import MOVED, fused_work
from weft.ref import tensor as ref

from .support.interpreted import counted

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
TYPES = [torch.float32, torch.bfloat16, torch.float16]
loss = import_module("weft.kernels.tensor.cross_entropy")  # in the package that is the function


@pytest.fixture(autouse=True)
def small(monkeypatch, request):
    """Several blocks also where rows are short and kernels are interpreted."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(loss, "LANES", 4)
        monkeypatch.setattr(loss, "BLOCK", 16)
        monkeypatch.setattr(import_module("weft.kernels.tensor.swiglu"), "BLOCK", 16)


def drawn(*shapes, dtype=torch.float32, seed=0):
    dice = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=dice).to(DEVICE, dtype).requires_grad_() for s in shapes]


def answers(face, inside, back, **how):
    """Results, and the gradients of all that there is inside."""
    given = [one for one in inside if one is not None]
    results = face(*inside, **how)
    results = results if isinstance(results, tuple) else (results,)
    back = [one.to(y.dtype) for one, y in zip(back, results, strict=False)]
    return [*results, *torch.autograd.grad(results, given, back)]


def exactly(face, inside, back, **how):
    wide = [None if one is None else one.detach().double().requires_grad_() for one in inside]
    return answers(face, wide, back, **how)


def near(found, wanted, dtype, factor=1.0):
    """Within two roundings of the largest number of each tensor."""
    eps = max(torch.finfo(dtype).eps, 2e-6) * factor
    for one, right in zip(found, wanted, strict=True):
        gap = (one.double() - right).abs().max()
        assert gap <= 2 * eps * right.abs().max().clamp(min=0.1), (gap, one.shape)


NORMS = {
    "rms_norm": lambda x, w, b, r: (x, w, r),
    "rms_norm, alone": lambda x, w, b, r: (x, w),
    "layer_norm": lambda x, w, b, r: (x, w, b, r),
    "layer_norm, no bias": lambda x, w, b, r: (x, w, None, r),
    "layer_norm, alone": lambda x, w, b, r: (x, w, b, None),
}


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("wide", [False, True], ids=["whole rows", "in pieces"])
@pytest.mark.parametrize("D", [1, 5, 37])
def test_norms_are_the_references_with_all_gradients(kind, wide, D, monkeypatch):
    if wide:
        monkeypatch.setattr(norm, "WIDEST", 2)
        monkeypatch.setattr(norm, "PIECE", 64)
    name = kind.partition(",")[0]
    inside = NORMS[kind](*drawn((2, 7, D), D, D, (2, 7, D)))
    back = [one.detach() for one in drawn((2, 7, D), (2, 7, D), seed=1)]
    found = answers(getattr(tensor, name), inside, back)
    near(found, exactly(getattr(ref, name), inside, back), torch.float32, 4)
    assert found[1].data_ptr() == inside[0].data_ptr() or "alone" not in kind


@pytest.mark.parametrize("dtype", TYPES[1:], ids=str)
@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_norms_in_half_precision_are_rounded_once(kind, dtype):
    """Of the sum as it is kept; weights may stay in fp32."""
    x, residual, dy, dtotal = (one.detach() for one in drawn(*[(9, 50)] * 4, dtype=dtype))
    weight, bias = drawn(50, 50, seed=2)
    inside = (x, weight, residual) if kind == "rms_norm" else (x, weight, bias, residual)
    inside = [one.requires_grad_() for one in inside]
    found = answers(getattr(tensor, kind), inside, (dy, dtotal))
    assert [one.dtype for one in found] == [dtype] * 2 + [one.dtype for one in inside]
    assert torch.equal(found[1], x + residual)
    total = found[1].detach().double().requires_grad_()
    right = [*inside[1:-1]]
    wanted = exactly(getattr(ref, kind), [total, *right], (dy, dtotal))
    near([found[0], *found[2:-1]], [wanted[0], *wanted[2:]], dtype)
    assert torch.equal(found[2], found[-1])


def test_what_flows_into_one_result_alone_flows_back():
    x, weight, residual = drawn((4, 6), 6, (4, 6))
    y, total = tensor.rms_norm(x, weight, residual)
    only = torch.autograd.grad(total.sum(), (x, residual), retain_graph=True)
    assert all(torch.equal(one, torch.ones_like(x)) for one in only)
    found = torch.autograd.grad(y.sum(), (x, weight, residual))
    wide = [one.detach().double().requires_grad_() for one in (x, weight, residual)]
    wanted = torch.autograd.grad(ref.rms_norm(*wide)[0].sum(), wide)
    near(found, wanted, torch.float32, 4)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("F", [1, 16, 37])
def test_swiglu_is_the_references_also_of_halves_of_a_matrix(F, dtype):
    both, dy = drawn((3, 2, 2 * F), (3, 2, F), dtype=dtype)
    gate, up = both.detach().chunk(2, -1)
    inside = gate.requires_grad_(), up.requires_grad_()
    found = answers(tensor.swiglu, inside, (dy.detach(),))
    near(found, exactly(ref.swiglu, inside, (dy.detach(),)), dtype)


PARTS = [(11, 0, None), (37, 7, 44), (33, 100, 120), (9, 5, 5), (64, 64, 128)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("N", "first", "last"), PARTS)
def test_a_part_and_its_gradient_are_the_references(N, first, last, dtype):
    scores = (20 * drawn((2, 3, N + 2))[0].detach()).to(dtype)[..., :N]  # rows have gaps
    targets = torch.randint(first, (last or N) + 2, (2, 3), device=DEVICE)
    found = tensor.vocabulary_part(scores, targets, first, last)
    right = ref.vocabulary_part(scores.double(), targets, first, last)
    for one, other in zip(found, right, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=1e-6)
    lse = right.lse.clamp(min=-5).float()
    for slope in (torch.tensor(0.3), torch.rand(2, 3)):
        given = targets, lse, slope.to(DEVICE), first, last
        got = tensor.scores_gradient(scores, *given)
        wanted = ref.scores_gradient(scores.double(), targets, lse.double(), *given[2:])
        near([got], [wanted], dtype, 4)
        own = scores.clone(memory_format=torch.contiguous_format)
        for room in (own, torch.full_like(scores, 7.0).mT.contiguous().mT.copy_(scores)):
            same = tensor.scores_gradient(room, *given, in_place=True)
            assert same is room and torch.equal(room, got)


def test_scores_that_grow_and_words_that_must_not_come():
    """The maximum changes in every tile, and whole tiles are -inf."""
    scores = torch.linspace(-300, 300, 90, device=DEVICE).repeat(3, 1)
    scores[1, :70] = -torch.inf
    scores[2] = scores[2].flip(0)
    targets = torch.tensor([0, 75, 89], device=DEVICE)
    found = tensor.vocabulary_part(scores, targets)
    torch.testing.assert_close(found.lse, scores.logsumexp(-1))
    none = tensor.vocabulary_part(torch.full((2, 40), -torch.inf, device=DEVICE), targets[:2])
    assert none.most.eq(-torch.inf).all() and none.sums.eq(0).all()


@pytest.mark.parametrize("in_place", [False, True])
def test_the_loss_of_a_whole_vocabulary_is_torchs(in_place):
    (start,) = drawn((2, 3, 50))
    targets = torch.randint(50, (2, 3), device=DEVICE)
    scores = start * 2  # what a matmul would give
    found = tensor.cross_entropy(scores, targets, in_place)
    (gradient,) = torch.autograd.grad(3 * found, start, retain_graph=in_place)
    wide = start.detach().double().requires_grad_()
    wanted = functional.cross_entropy(2 * wide.flatten(0, 1), targets.flatten())
    near([found, gradient], [wanted, *torch.autograd.grad(3 * wanted, wide)], torch.float32)
    if in_place:
        assert torch.equal(2 * scores, gradient)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.backward()


def test_no_tokens_at_all():
    x, weight, gate = drawn((0, 6), 6, (0, 6))
    for found in (
        answers(tensor.rms_norm, (x, weight), (x, x)),
        answers(tensor.swiglu, (x, gate), (x,)),
        tensor.vocabulary_part(x.detach(), torch.zeros(0, dtype=torch.int64, device=DEVICE)),
    ):
        assert not any(one.isnan().any() for one in found)


def test_the_weights_gradient_is_the_same_every_time():
    inside = drawn((5, 23, 40), 40, 40, (5, 23, 40))
    back = [one.detach() for one in drawn((5, 23, 40), (5, 23, 40), seed=1)]
    first, second = (answers(tensor.layer_norm, inside, back) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_argument_is_named(said):
    with pytest.raises(ValueError) as caught:
        WRONG[said](tensor)
    assert str(caught.value).startswith(said)


def test_a_kernel_has_no_float64():
    x, w = torch.zeros(2, 3, dtype=torch.float64), torch.zeros(3)
    words = torch.zeros(2, dtype=torch.int64)
    for call in (
        lambda: tensor.rms_norm(x, w),
        lambda: tensor.vocabulary_part(x, words),
        lambda: tensor.cross_entropy(x, words),
    ):
        with pytest.raises(ValueError, match="is float64, must be float16, bfloat16 or float32"):
            call()


# --- bytes ----------------------------------------------------------------------------------------

T, D = 6, 48


class Operations(TorchDispatchMode):
    """Bytes of whole matrices that torch's operations read and write, one by one."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        # The last two touch a number of a row; set_ is how the interpreter takes a tensor.
        few = any(word in func.name() for word in ("empty", "detach", "set_", "gather", "scatter"))
        if not func.is_view and not few:
            for x in tree_leaves((args, kwargs, result)):
                if torch.is_tensor(x) and x.shape == (T, D) and 0 not in x.stride():
                    self.bytes += x.nbytes
        return result


def work(layer, version="fused", size=4):
    """Bytes forward and backward, as the plan has them."""
    return [fused_work(layer, T, D, size, version, backward).bytes for backward in (False, True)]


def metered(call):
    with Operations() as beside:
        found = call()
    return found, beside.bytes


@pytest.mark.parametrize("dtype", TYPES[:2], ids=str)
def test_torchs_operations_move_what_is_counted(dtype):
    x, other, dy, dtotal = drawn(*[(T, D)] * 4, dtype=dtype)
    (weight,) = drawn(D, dtype=dtype)
    for layer, face, inside, back in (
        ("norm", VERSIONS["rms_norm"], (x, weight, other), (dy.detach(), dtotal.detach())),
        ("swiglu", VERSIONS["swiglu"], (x, other), dy.detach()),
    ):
        results, forward = metered(lambda face=face, inside=inside: face["plain"](*inside))
        given = results, inside, back
        _, backward = metered(lambda given=given: torch.autograd.grad(*given))
        assert [forward, backward] == work(layer, "plain", dtype.itemsize)
    scores, targets = x.detach(), torch.arange(T, device=DEVICE)
    given = scores, targets, *torch.zeros(2, T, device=DEVICE)
    _, forward = metered(lambda: VERSIONS["vocabulary_part"]["plain"](scores, targets))
    _, backward = metered(lambda: VERSIONS["scores_gradient"]["plain"](*given))
    assert [forward, backward] == work("cross_entropy", "plain", dtype.itemsize)


def test_kernels_apart_move_what_is_counted():
    """Beside one of torch's: a sum reads two matrices and writes one, a maximum reads one."""
    x, dy = drawn((T, D), (T, D))
    (weight,) = drawn(D)
    with counted(x=x) as forward:
        y, _ = VERSIONS["rms_norm"]["apart"](x, weight)
    with counted(dy=dy, x=x) as back:
        torch.autograd.grad(y, (x, weight), dy)
    assert forward["x"] == back["x"] / 2 == back["dy"] / 2 == T * D
    assert work("norm", "apart") == [4 * T * D * (3 + 2), 4 * T * D * (3 + 3)]
    with counted() as forward:
        VERSIONS["vocabulary_part"]["apart"](x.detach(), torch.arange(T, device=DEVICE))
    assert 4 * (T * D + forward["all"] - T) == work("cross_entropy", "apart")[0]


def test_the_fused_norm_moves_what_is_counted():
    given = drawn(*[(T, D)] * 4)
    x, residual, dy, dtotal = given
    (weight,) = drawn(D)
    with counted(x=x, residual=residual, weight=weight) as forward:
        y, total = tensor.rms_norm(x, weight, residual)
    assert forward["x"] == forward["residual"] == forward["weight"] == T * D
    assert forward["all"] == 3 * T * D
    assert forward["all written"] == 2 * T * D + T  # the scales
    with counted(total=total, dy=dy, dtotal=dtotal) as back:
        torch.autograd.grad((y, total), (x, weight, residual), (dy, dtotal))
    # Twice, the second time from the cache: that is a load, and no traffic with memory.
    assert back["total"] == back["dy"] == 2 * T * D and back["dtotal"] == T * D
    programs = -(-T // norm.LEAST)
    assert back["all written"] == T * D + programs * D
    assert work("norm") == [4 * T * D * (2 + 2), 4 * T * D * (3 + 1)]


def test_the_fused_swiglu_moves_what_is_counted():
    gate, up, dy = drawn(*[(T, D)] * 3)
    with counted() as forward:
        y = tensor.swiglu(gate, up)
    with counted() as back:
        torch.autograd.grad(y, (gate, up), dy)
    found = [4 * (one["all"] + one["all written"]) for one in (forward, back)]
    assert found == work("swiglu")


def test_scores_are_read_twice_and_written_once_and_never_copied():
    (start,) = drawn((T, D))
    targets = torch.arange(T, device=DEVICE)
    scores = (start * 1.0).detach().requires_grad_()
    with counted(scores=scores) as forward, Operations() as beside:
        found = tensor.cross_entropy(scores, targets, in_place=True)
    assert beside.bytes == 0
    assert forward["scores"] == T * D + T  # and the target's once more
    with counted(scores=scores) as back, Operations() as beside:
        (gradient,) = torch.autograd.grad(found, scores)
    assert beside.bytes == 0 and gradient.data_ptr() == scores.data_ptr()
    assert back["scores"] == back["scores written"] == T * D
    assert work("cross_entropy") == [4 * (forward["scores"] - T), 4 * 2 * back["scores"]]


@pytest.mark.parametrize("layer", VERSIONS)
def test_every_version_gives_the_same(layer):
    x, residual, lse = drawn((T, D), (T, D), T)
    (weight,) = drawn(D)
    targets = torch.arange(8, 8 + 4 * T, 4, device=DEVICE)
    given = {
        "rms_norm": (x, weight, residual), "swiglu": (x, residual),
        "vocabulary_part": (x.detach(), targets, 10, 50),
        "scores_gradient": (x.detach(), targets, lse.detach() + 4, lse.detach(), 10, 50),
    }[layer]  # fmt: skip
    versions = VERSIONS[layer]
    wanted = versions["fused"](*given)
    for face in versions.values():
        torch.testing.assert_close(face(*given), wanted)
    counts = {"rms_norm": "norm", "swiglu": "swiglu"}.get(layer, "cross_entropy")
    assert versions.keys() <= MOVED[counts].keys()


# --- the machine code -----------------------------------------------------------------------------


def test_whole_vectors_are_moved():
    """16 bytes at a time, but for single numbers; that nothing spills, test_machine_code holds."""
    alone = {"part": 2, "part dx": 3}  # a target and its score; a target, the lse and the slope
    for face in (tensor.swiglu, tensor.vocabulary_part):
        for one in compile_for(face, "sm_90"):
            loads = [x.name for x in one.instructions if x.name.startswith("LDG")]
            single = [name for name in loads if not name.endswith(".128")]
            assert len(single) == alone.get(one.name.partition(" of")[0], 0), (one.name, loads)
            assert one.count("LDG.E.128") and one.count("STG") > 0
