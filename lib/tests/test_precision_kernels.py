"""The fused Adam against the reference: every type, sizes around a block, layouts, overflow, and
the machine code that a GPU would be given."""

import pytest
import torch
from torch.nn import Parameter

from weft.kernels import compile_for, precision
from weft.kernels.precision import BLOCK, adam, per_tensor
from weft.ref.precision import LossScaler, MasterAdam
from weft.ref.precision import adam as reference

TYPES = [torch.bfloat16, torch.float16, torch.float32]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KERNELS = [adam, per_tensor]
HOW = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}


def name(x):
    return getattr(x, "__name__", str(x))


def tensors(shapes, weight_type, gradient_type=None, seed=0, steps=3.0):
    """Weights and all that Adam needs, in the middle of a training."""
    dice = torch.Generator().manual_seed(seed)
    made = []
    for shape in shapes:
        master, mean, square = (torch.randn(shape, generator=dice) for _ in range(3))
        gradient = torch.randn(shape, generator=dice).to(gradient_type or weight_type)
        weight = master.to(weight_type) if weight_type != torch.float32 else master
        made.append((weight, gradient, master, mean, square.square(), torch.tensor(steps)))
    return here(list(map(list, zip(*made, strict=True))))


def here(lists):
    return [[x.to(DEVICE) for x in tensors] for tensors in lists]


def copied(lists):
    """The same tensors elsewhere; a weight that is its own master stays so."""
    weights, masters = lists[0], lists[2]
    again = [[x.clone() for x in tensors] for tensors in lists]
    for i, (weight, master) in enumerate(zip(weights, masters, strict=True)):
        if weight.data_ptr() == master.data_ptr():
            again[0][i] = again[2][i]
    return again


def double(lists, **how):
    """What the reference makes of the same in double precision: masters, means, squares."""
    wide = [[x.double() for x in tensors] for tensors in lists[1:]]
    how = HOW | how
    beta1, beta2 = how["betas"]
    scale = 1.0 if how.get("scale") is None else float(how["scale"])
    for g, master, m, v, step in zip(*wide, strict=True):
        g = g / scale + how["weight_decay"] * master
        m += (1 - beta1) * (g - m)
        v *= beta2
        v += (1 - beta2) * g * g
        n = step.item() + 1
        size = (v / (1 - beta2**n)).sqrt() + how["eps"]
        master -= how["lr"] / (1 - beta1**n) * m / size
    return wide[1:4]


def check(got, exact):
    """Masters, means and squares to a few roundings of fp32, weights to the bit."""
    for tensors, wide in zip(got[2:5], exact, strict=True):
        for x, other in zip(tensors, wide, strict=True):
            torch.testing.assert_close(x.double(), other, rtol=2e-6, atol=1e-6)
    for weight, master in zip(got[0], got[2], strict=True):
        assert torch.equal(weight, master.to(weight.dtype))


@pytest.mark.parametrize("kernel", [*KERNELS, reference], ids=["adam", "per_tensor", "reference"])
@pytest.mark.parametrize("weight_type", TYPES, ids=str)
@pytest.mark.parametrize("gradient_type", [None, torch.float32], ids=["same", "fp32"])
def test_a_step_is_adams(kernel, weight_type, gradient_type):
    shapes = [(3, 5), (BLOCK,), (BLOCK + 1,), (), (2 * BLOCK + 16,), (7, 1, 11)]
    given = tensors(shapes, weight_type, gradient_type)
    exact = double(given)
    kernel(*given, **HOW)
    check(given, exact)
    assert all(step == 4 for step in given[5])


@pytest.mark.parametrize("kernel", KERNELS, ids=name)
@pytest.mark.parametrize("step", [0.0, 1.0, 999.0, 1e6])
def test_the_first_step_is_as_exact_as_the_last(kernel, step):
    """1 - 0.999 to the power of the step needs more than fp32 while it is small."""
    how = {"lr": 1.0, "betas": (0.9, 0.999), "weight_decay": 0.0}
    given = tensors([(33,)], torch.float32, steps=step)
    exact = double(given, **how)
    kernel(*given, **(HOW | how))
    check(given, exact)


@pytest.mark.parametrize("kernel", KERNELS, ids=name)
def test_no_memory_of_the_past(kernel):
    given = tensors([(9,)], torch.float32)
    exact = double(given, betas=(0.0, 0.0))
    kernel(*given, **(HOW | {"betas": (0.0, 0.0)}))
    check(given, exact)


@pytest.mark.parametrize("kernel", KERNELS, ids=name)
def test_gradients_are_divided_by_the_scale_in_fp32(kernel):
    scale = torch.tensor(2.0**13, device=DEVICE)
    given = tensors([(40,)], torch.float16)
    given[1] = [g * 2.0**-24 for g in given[1]]  # below what fp16 would hold, divided
    given[3] = [torch.zeros_like(m) for m in given[3]]
    exact = double(given, scale=scale, weight_decay=0.0)
    kernel(*given, **(HOW | {"weight_decay": 0.0}), scale=scale)
    check(given, exact)
    assert given[3][0].abs().max() < 2.0**-30 and given[3][0].any()


@pytest.mark.parametrize("kernel", [*KERNELS, reference], ids=["adam", "per_tensor", "reference"])
def test_after_an_overflow_nothing_moves(kernel):
    given = tensors([(5,), (BLOCK + 3,)], torch.float16)
    given[1][0][2] = torch.inf
    before = copied(given)
    kernel(*given, **HOW, found=torch.tensor(1.0, device=DEVICE))
    for tensors_, others in zip(given, before, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(tensors_, others, strict=True))
    kernel(*given, **HOW, found=torch.tensor(0.0, device=DEVICE))
    assert all(step == 4 for step in given[5]) and not torch.equal(given[0][1], before[0][1])


def test_nothing_outside_is_written():
    """Tensors side by side in one buffer, most of them not aligned, with poison between them."""
    sizes, edge = (5, BLOCK, 17), 3
    buffers = []
    given = tensors([(n,) for n in sizes], torch.bfloat16)
    exact = double(given)
    for i in range(5):
        buffer = torch.full((sum(sizes) + edge * 4,), -7.0, device=DEVICE, dtype=given[i][0].dtype)
        at = edge
        for j, n in enumerate(sizes):
            buffer[at : at + n] = given[i][j]
            given[i][j] = buffer[at : at + n]
            at += n + edge
        buffers.append(buffer)
    for kernel in KERNELS:
        again = [[x.clone() for x in given[5]]]
        kept = [b.clone() for b in buffers]
        kernel(*given[:5], *again, **HOW)
        check([*given[:5], *again], exact)
        for buffer, old in zip(buffers, kept, strict=True):
            outside = old == -7.0
            assert outside.sum() == edge * 4 and (buffer[outside] == -7.0).all()
            buffer.copy_(old)


@pytest.mark.parametrize("kernel", KERNELS, ids=name)
def test_a_transposed_weight_and_a_gradient_of_another_layout(kernel):
    given = tensors([(6, 10)], torch.bfloat16)
    turned = [[x.t() for x in group] for group in given[:5]]
    turned[1] = [x.contiguous() for x in turned[1]]
    exact = double([*turned, given[5]])
    kernel(*turned, given[5], **HOW)
    check([*turned, given[5]], exact)


@pytest.mark.parametrize("kernel", KERNELS, ids=name)
def test_several_types_at_once_and_tensors_of_nothing(kernel):
    parts = [tensors([(n,)], dtype, seed=n) for n, dtype in zip((3, 70, 8), TYPES, strict=True)]
    parts.append(tensors([(0,)], torch.float16))
    given = [[x for group in groups for x in group] for groups in zip(*parts, strict=True)]
    exact = double(given)
    kernel(*given, **HOW)
    check(given, exact)
    kernel(*([] for _ in range(6)), **HOW)


def test_nan_stays_where_it_is():
    given = tensors([(9,)], torch.bfloat16)
    given[1][0][4] = torch.nan
    exact = double(given)
    adam(*given, **HOW)
    bad = given[0][0].isnan()
    assert bad.sum() == 1 and bad[4]
    assert torch.equal(exact[0][0].isnan(), bad)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_optimizer_is_the_same_with_either(dtype):
    """Under a loss scaler that meets an overflow."""
    dice = torch.Generator().manual_seed(4)
    start = [torch.randn(shape, generator=dice).to(dtype) for shape in ((4, 3), (50,))]
    runs = []
    for kernel in (reference, adam):
        weights = [Parameter(w.clone().to(DEVICE)) for w in start]
        optimizer = MasterAdam(weights, lr=0.01, weight_decay=0.01, adam=kernel)
        scaler = LossScaler(init_scale=256.0)
        for factor in (1.0, 1e-3, torch.inf, 0.3):
            optimizer.zero_grad()
            loss = sum((w.float() * factor).square().sum() for w in weights)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        runs.append((weights, optimizer, scaler.state_dict()))
    (ours, first, state), (theirs, second, other) = runs
    assert state == other and state["scale"] == 128
    for a, b in zip(ours, theirs, strict=True):
        one, two = first.state[a], second.state[b]
        assert one["step"] == two["step"] == 3
        torch.testing.assert_close(one["master"], two["master"], rtol=1e-5, atol=1e-6)


WRONG = {
    "weights and the rest are 2 weights, 1 gradients": lambda t: t[0].append(t[0][0]),
    r"gradients\[0\] is torch.float64": lambda t: t[1].__setitem__(0, t[1][0].double()),
    r"masters\[0\] is torch.bfloat16, must be one of torch.float32": lambda t: t.__setitem__(
        2, [x.bfloat16() for x in t[2]]
    ),
    r"means\[0\] has shape \[4\]": lambda t: t[3].__setitem__(0, t[3][0][:4]),
    r"gradients\[0\] has shape \[4\]": lambda t: t[1].__setitem__(0, t[1][0][:4]),
    r"steps\[0\] has shape \[1\]": lambda t: t[5].__setitem__(0, t[5][0][None]),
    r"weights\[0\] has gaps in memory": lambda t: t[0].__setitem__(0, t[0][0].repeat(2)[::2]),
}


@pytest.mark.parametrize("says", WRONG)
@pytest.mark.parametrize("kernel", KERNELS, ids=name)
def test_what_is_wrong_is_said(kernel, says):
    given = tensors([(5,)], torch.bfloat16)
    WRONG[says](given)
    with pytest.raises(ValueError, match=says):
        kernel(*given, **HOW)


# --- the machine code -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_whole_vectors_are_read_and_written(target):
    """16 bytes at a time: one for gradients, two each for masters, means and squares."""
    first, grouped = compile_for(adam, target)
    assert [one.name for one in (first, grouped)] == ["per_tensor", "grouped"]
    for one in (first, grouped):
        assert one.spills == 0
        assert one.count("LDG.E.128") == one.count("STG.E.128") == 7
        assert 4 * 128 * one.registers <= 65536  # four programs on a multiprocessor


def test_the_compiled_kernels_are_those_that_run():
    first, grouped = precision.passes("sm_90")
    assert first.constexprs["BLOCK"] == grouped.constexprs["BLOCK"] == BLOCK
    assert grouped.constexprs["ALIGNED"] and not first.constexprs["OWN"]


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS, ids=name)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_on_a_gpu_large_tensors_are_the_reference(kernel, dtype):
    given = tensors([(1000, 333), (1 << 22,), (65537,)], dtype)
    exact = double(given)
    kernel(*given, **HOW)
    check(given, exact)
