"""Loss scaling state by state against torch's, Adam on master weights, stochastic rounding, FP8."""

import copy
from math import inf, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.plan.precision.formats import FORMATS
from weft.ref.precision import LossScaler, MasterAdam
from weft.ref.precision.rounding import FORMAT, Delayed, saturated, stochastic

HALF = [torch.float16, torch.bfloat16]
STATE = "scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"


def pair(**how):
    """Our scaler and torch's, each with a weight and an optimizer of its own."""
    made = []
    for kind in (LossScaler, torch.amp.GradScaler):
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        made.append((kind("cpu", **how), weight, torch.optim.SGD([weight], lr=0.25)))
    return made


def train(scaler, weight, optimizer, gradient, unscale):
    """One step with that gradient."""
    optimizer.zero_grad()
    loss = (weight * torch.tensor([gradient, 0.5])).sum()
    scaler.scale(loss).backward()
    if unscale:
        scaler.unscale_(optimizer)
    seen = weight.grad.clone()
    scaler.step(optimizer)
    scaler.update()
    return seen


# --- the loss scaler ------------------------------------------------------------------------------


def test_defaults_are_torchs():
    ours, theirs = LossScaler("cpu"), torch.amp.GradScaler("cpu")
    assert ours.state_dict() == theirs.state_dict() and tuple(ours.state_dict()) == STATE
    assert ours.get_scale() == theirs.get_scale() == 65536
    assert (ours.get_growth_factor(), ours.get_backoff_factor()) == (2.0, 0.5)
    assert ours.get_growth_interval() == 2000 and ours.is_enabled()


@settings(max_examples=25)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([1.0, 1e-3, inf, -inf, nan, 3e38]), st.booleans()), max_size=30
    ),
    how=st.fixed_dictionaries(
        {
            "init_scale": st.sampled_from([2.0**16, 1.0, 3.7, 2.0**126, 1e-30]),
            "growth_factor": st.sampled_from([2.0, 1.1, 3.0]),
            "backoff_factor": st.sampled_from([0.5, 0.3, 0.9]),
            "growth_interval": st.integers(1, 4),
        }
    ),
)
def test_every_state_is_torchs_over_any_steps(steps, how):
    """Scale, tracker, unscaled gradients and weights after each step, to the bit."""
    (ours, w, o), (theirs, v, p) = pair(**how)
    for gradient, unscale in steps:
        one, other = train(ours, w, o, gradient, unscale), train(theirs, v, p, gradient, unscale)
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        assert ours.state_dict() == theirs.state_dict()
        assert ours.get_scale() == theirs.get_scale()
        assert torch.equal(w, v)


def test_two_optimizers_skip_apart_and_back_off_together():
    for scaler in (LossScaler("cpu"), torch.amp.GradScaler("cpu")):
        weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
        optimizers = [torch.optim.SGD([w], lr=1.0) for w in weights]
        scaler.scale(weights[0].sum() * inf + weights[1].sum()).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        assert weights[0].tolist() == [1, 1] and weights[1].tolist() == [0, 0]
        assert scaler.get_scale() == 32768


def test_a_state_goes_from_one_to_the_other():
    (ours, w, o), (theirs, v, p) = pair(growth_interval=3)
    for gradient in (inf, 1.0, 1.0):
        train(theirs, v, p, gradient, False)
    ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        w.copy_(v)
    for gradient in (1.0, 1.0, inf):
        train(ours, w, o, gradient, False), train(theirs, v, p, gradient, False)
        assert ours.state_dict() == theirs.state_dict() and torch.equal(w, v)
    theirs.load_state_dict(ours.state_dict())
    assert theirs.get_scale() == ours.get_scale()


def test_setters_and_a_scale_that_is_set():
    (ours, w, o), (theirs, v, p) = pair()
    for scaler, weight, optimizer in ((ours, w, o), (theirs, v, p)):
        train(scaler, weight, optimizer, 1.0, False)
        scaler.set_growth_factor(3.0)
        scaler.set_backoff_factor(0.25)
        scaler.set_growth_interval(2)
        scaler.update(12.5)
        assert scaler.get_scale() == 12.5
        train(scaler, weight, optimizer, 1.0, False)
    assert ours.state_dict() == theirs.state_dict()
    assert ours.get_scale() == 37.5


def test_scaled_outputs_are_torchs():
    (ours, *_), (theirs, *_) = pair(init_scale=2.0**17)
    for loss in (torch.tensor(1.5), torch.tensor(1.5, dtype=torch.float16), torch.ones(2).half()):
        one, other = ours.scale(loss), theirs.scale(loss)
        assert torch.equal(one, other) and one.dtype == other.dtype
    both = ours.scale([torch.tensor(1.0), (torch.tensor(2.0),)])
    assert both[0] == 2**17 and both[1][0] == 2**18 and type(both[1]) is tuple


def test_disabled_it_does_nothing():
    (ours, w, o), (theirs, v, p) = pair(enabled=False)
    for scaler, weight, optimizer in ((ours, w, o), (theirs, v, p)):
        train(scaler, weight, optimizer, 1.0, True)
        assert scaler.get_scale() == 1 and scaler.state_dict() == {} and not scaler.is_enabled()
        scaler.load_state_dict({})
    assert torch.equal(w, v) and w[0] == 0.75


def scaled():
    scaler, weight, optimizer = pair()[0]
    scaler.scale(weight.sum()).backward()
    return scaler, weight, optimizer


def test_the_order_of_the_methods_is_kept():
    scaler, _, optimizer = pair()[0]
    for method in (scaler.unscale_, scaler.step):
        with pytest.raises(RuntimeError, match="before scale"):
            method(optimizer)
    with pytest.raises(RuntimeError, match="before any step"):
        scaler.update()
    scaler, _, optimizer = scaled()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="twice since the last update"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    for call, says in ((scaler.step, "twice on this"), (scaler.unscale_, "after step")):
        with pytest.raises(RuntimeError, match=says):
            call(optimizer)
    scaler.update()
    scaler.unscale_(optimizer)


@pytest.mark.parametrize("kind", [LossScaler, torch.amp.GradScaler])
def test_half_gradients_are_not_unscaled_in_place(kind):
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    scaler, optimizer = kind("cpu"), torch.optim.SGD([weight], lr=1.0)
    scaler.scale(weight.sum()).backward()
    with pytest.raises(ValueError, match=r"fp16|FP16"):
        scaler.unscale_(optimizer)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: LossScaler(init_scale=0), "init_scale is 0, must be a finite number above 0"),
        (lambda: LossScaler(init_scale=inf), "init_scale is inf"),
        (lambda: LossScaler(growth_factor=1.0), "growth_factor is 1.0"),
        (lambda: LossScaler(backoff_factor=1.5), "backoff_factor is 1.5"),
        (lambda: LossScaler(growth_interval=0), "growth_interval is 0"),
        (lambda: LossScaler().scale("loss"), "outputs is a str, must be a tensor or a list"),
        (lambda: scaled()[0].update(-1.0), "new_scale is -1.0"),
        (lambda: scaled()[0].set_growth_factor(0.5), "growth_factor is 0.5"),
        (lambda: LossScaler().load_state_dict({}), "state_dict lacks scale, _growth_tracker"),
        (lambda: MasterAdam([torch.ones(1)], lr=-1), "lr is -1, must be at least 0"),
        (lambda: MasterAdam([torch.ones(1)], betas=(0.9, 1.0)), r"betas\[1\] is 1.0, .* below 1"),
        (lambda: MasterAdam([]), "empty parameter list"),
        (lambda: stochastic(torch.ones(1), torch.float64), "dtype is torch.float64, must be one"),
        (lambda: Delayed(torch.int8), "dtype is torch.int8"),
        (lambda: Delayed(torch.float8_e5m2, amax_history_len=0), "amax_history_len is 0"),
        (lambda: Delayed(torch.float8_e5m2, amax_compute_algo="min"), "amax_compute_algo is 'min'"),
    ],
)
def test_what_is_wrong_is_said(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_gradients_that_are_missing_or_sparse_are_refused():
    scaler, weight, optimizer = scaled()
    weight.grad = None
    with pytest.raises(ValueError, match="optimizer has no gradients"):
        scaler.step(optimizer)
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 3])).sum().backward()
    for call in (
        lambda: scaler.unscale_(torch.optim.SGD(table.parameters(), lr=1.0)),
        MasterAdam(table.parameters()).step,
    ):
        with pytest.raises(ValueError, match="sparse gradient"):
            call()


# --- Adam on master weights -----------------------------------------------------------------------


def walk(optimizer, weights, steps, seed=0):
    """Steps with gradients drawn for each weight, some of which have none in some steps."""
    dice = torch.Generator().manual_seed(seed)
    for i in range(steps):
        for j, weight in enumerate(weights):
            gradient = torch.randn(weight.shape, generator=dice).bfloat16()
            gradient = (gradient * 10.0 ** (j - 3)).half()  # fits in all the types below
            weight.grad = None if (i + j) % 5 == 4 else gradient.to(weight.dtype)
        optimizer.step()


def start(dtype, seed=1):
    dice = torch.Generator().manual_seed(seed)
    shapes = [(3, 5), (7,), ()]
    return [torch.nn.Parameter(torch.randn(s, generator=dice).to(dtype)) for s in shapes]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"lr": 0.03, "betas": (0.5, 0.9), "eps": 1e-4},
        {"weight_decay": 0.1},
        {"betas": (0.0, 0.0)},
    ],
)
def test_in_fp32_it_is_torchs_adam(how):
    ours, theirs = start(torch.float32), start(torch.float32)
    walk(MasterAdam(ours, **how), ours, 40)
    walk(torch.optim.Adam(theirs, foreach=False, **how), theirs, 40)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_masters_are_what_fp32_would_have_been_and_weights_their_rounding(dtype):
    weights = start(dtype)
    exact = [torch.nn.Parameter(w.detach().float()) for w in weights]
    optimizer = MasterAdam(weights, lr=1e-3)
    walk(optimizer, weights, 30)
    dice = torch.Generator().manual_seed(0)
    adam = torch.optim.Adam(exact, lr=1e-3, foreach=False)
    for i in range(30):
        for j, weight in enumerate(exact):
            gradient = torch.randn(weight.shape, generator=dice).bfloat16()
            gradient = (gradient * 10.0 ** (j - 3)).half().to(dtype).float()
            weight.grad = None if (i + j) % 5 == 4 else gradient
        adam.step()
    for weight, other in zip(weights, exact, strict=True):
        master = optimizer.state[weight]["master"]
        assert master.dtype == torch.float32 and weight.dtype == dtype
        torch.testing.assert_close(master, other.detach(), rtol=2e-6, atol=1e-7)
        assert torch.equal(weight, master.to(dtype))


def test_small_updates_are_lost_without_masters_and_kept_with():
    plain, kept = (torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16)) for _ in range(2))
    without = torch.optim.Adam([plain], lr=1e-3, foreach=False)
    optimizer = MasterAdam([kept], lr=1e-3)
    for _ in range(100):
        plain.grad = kept.grad = torch.ones(4, dtype=torch.bfloat16)
        without.step()
        optimizer.step()
    assert torch.equal(plain, torch.ones(4, dtype=torch.bfloat16))
    torch.testing.assert_close(
        optimizer.state[kept]["master"], torch.full((4,), 0.9), atol=1e-4, rtol=0
    )
    assert (kept - 0.9).abs().max() < 2**-8


@pytest.mark.parametrize("kind", [LossScaler, torch.amp.GradScaler])
@pytest.mark.parametrize("dtype", [*HALF, torch.float32], ids=str)
def test_scalers_leave_the_division_to_it(kind, dtype):
    """Under both scalers, gradients of all types: those of a step without a scale, or no step."""
    weight, other = (torch.nn.Parameter(torch.ones(3, dtype=dtype)) for _ in range(2))
    scaler, optimizer = kind("cpu", init_scale=2.0**10), MasterAdam([weight], lr=0.1)
    plain = MasterAdam([other], lr=0.1)
    for i, factor in enumerate((1e-6, 0.25, inf, 2e-6)):
        factors = torch.tensor([factor, 2 * factor, 1.0])
        scaler.scale((weight.float() * factors).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        if factor != inf:
            scale = 2.0**10 if i < 3 else 2.0**9
            other.grad = (factors * scale).to(dtype)
            plain.grad_scale = torch.tensor(scale)
            plain.step()
        assert torch.equal(weight, other)
        optimizer.zero_grad()
    assert scaler.get_scale() == 2**9 and optimizer.state[weight]["step"] == 3


def test_after_unscaling_it_divides_no_more():
    weight = torch.nn.Parameter(torch.ones(2))
    scaler, optimizer = LossScaler(), MasterAdam([weight], lr=0.1)
    scaler.scale((weight * torch.tensor([3.0, 4.0])).sum()).backward()
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [3, 4]
    scaler.step(optimizer)
    torch.testing.assert_close(weight.detach(), torch.full((2,), 0.9))
    assert not hasattr(optimizer, "grad_scale") and not hasattr(optimizer, "found_inf")


@pytest.mark.parametrize("dtype", [*HALF, torch.float32], ids=str)
def test_a_checkpoint_keeps_the_masters(dtype):
    """torch would round them to the weights' type when it loads them."""
    weights = start(dtype)
    optimizer = MasterAdam(weights, lr=1e-3)
    walk(optimizer, weights, 7)
    saved, kept = copy.deepcopy(optimizer.state_dict()), [w.detach().clone() for w in weights]
    walk(optimizer, weights, 5, seed=3)
    again = [torch.nn.Parameter(w.clone()) for w in kept]
    other = MasterAdam(again, lr=1e-3)
    other.load_state_dict(saved)
    walk(other, again, 5, seed=3)
    for a, b in zip(weights, again, strict=True):
        assert torch.equal(a, b)
        for name in ("master", "exp_avg", "exp_avg_sq", "step"):
            assert torch.equal(optimizer.state[a][name], other.state[b][name])


def test_a_closure_is_called_with_gradients():
    weight = torch.nn.Parameter(torch.tensor([2.0]))

    def closure():
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    assert MasterAdam([weight], lr=0.5).step(closure) == 4
    assert weight.item() == pytest.approx(1.5)


# --- stochastic rounding --------------------------------------------------------------------------

TYPES = [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_it_goes_to_a_neighbour_as_the_plan_does(dtype):
    format = FORMAT[dtype]
    x = torch.randn(400, generator=torch.Generator().manual_seed(2))
    x = x * 2.0 ** torch.linspace(-20, 4, 400)
    dice = torch.Generator().manual_seed(5)
    thresholds = torch.rand(400, generator=dice, dtype=torch.float64).tolist()
    got = stochastic(x, dtype, torch.Generator().manual_seed(5))
    assert got.dtype == dtype
    expected = [format.round(v, t) for v, t in zip(x.tolist(), thresholds, strict=True)]
    assert got.double().tolist() == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_it_is_right_on_average(dtype):
    """Within five deviations of the mean of n throws, each of which is a spacing or nothing."""
    n, format = 40_000, FORMAT[dtype]
    for value in (1.3, -0.07, 2.0**-9 * 1.234, format.min_subnormal * 0.4):
        got = stochastic(torch.full((n,), value), dtype, torch.Generator().manual_seed(7)).double()
        error = abs(got.mean().item() - torch.tensor(value).item())
        assert error <= 5 * 0.5 * format.spacing(value) / n**0.5
        assert 1 < len(got.unique()) <= 2 or error == 0


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_what_is_there_already_stays(dtype):
    bits = torch.arange(2 ** min(FORMAT[dtype].bits, 16), dtype=torch.int32)
    raw = bits.to(torch.uint8 if FORMAT[dtype].bits == 8 else torch.int16)
    x = raw.view(dtype)
    finite = x.float().isfinite()
    assert torch.equal(stochastic(x.float(), dtype).float()[finite], x.float()[finite])
    assert stochastic(torch.tensor([nan]), dtype).float().isnan().all()


def test_a_sum_of_small_updates_arrives():
    total = nearest = torch.ones(2000, dtype=torch.bfloat16)
    dice = torch.Generator().manual_seed(0)
    for _ in range(200):
        nearest = nearest + torch.full_like(nearest, 2.0**-10)
        total = stochastic(total.float() + 2.0**-10, torch.bfloat16, dice)
    assert torch.equal(nearest, torch.ones_like(nearest))
    assert total.float().mean().item() == pytest.approx(1 + 200 * 2.0**-10, abs=2e-3)


# --- FP8 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_what_is_too_large_saturates(name):
    dtype = {f.name: d for d, f in FORMAT.items()}[name]
    x = torch.tensor([1e9, -inf, 3.0, nan, FORMATS[name].max * 1.01])
    got = saturated(x, dtype).float().tolist()
    most = FORMATS[name].max
    assert got[:3] == [most, -most, 3.0] and got[3] != got[3] and got[4] == most


def test_the_scale_is_that_of_the_steps_before():
    """By hand: 448 / max, from a history of three; the first step has none."""
    recipe = Delayed(torch.float8_e4m3fn, amax_history_len=3)
    scales = []
    for amax in (7.0, 3.5, 14.0, 1.0, 1.0, 1.0):
        small, inverse = recipe.quantize(torch.tensor([amax, -amax / 2]))
        scales.append(1 / inverse)
        assert small.dtype == torch.float8_e4m3fn
    assert scales == [1, 64, 64, 32, 32, 32] and recipe.scale == 448
    recent = Delayed(torch.float8_e4m3fn, margin=1, amax_compute_algo="most_recent")
    for amax in (14.0, 7.0):
        recent.quantize(torch.tensor([amax]))
    assert recent.scale == 32


def test_a_jump_saturates_once():
    recipe = Delayed(torch.float8_e5m2, amax_history_len=4)
    recipe.restore(torch.tensor([1.0]))
    assert recipe.restore(torch.tensor([100.0])).item() == pytest.approx(1.0)
    assert recipe.restore(torch.tensor([100.0])).item() == pytest.approx(100.0, rel=1e-6)


def test_zeros_and_overflows_leave_the_scale():
    recipe = Delayed(torch.float8_e4m3fn, amax_history_len=1)
    recipe.quantize(torch.tensor([7.0]))
    for x in (torch.zeros(3), torch.tensor([inf, 1.0]), torch.tensor([nan]), torch.empty(0)):
        recipe.quantize(x)
        assert recipe.scale == 64


@given(power=st.integers(-40, 40), seed=st.integers(0, 99))
def test_after_one_step_any_size_of_tensor_fits(power, seed):
    """The error is that of three bits of fraction, wherever the tensor lies."""
    x = torch.randn(50, generator=torch.Generator().manual_seed(seed)) * 2.0**power
    recipe = Delayed(torch.float8_e4m3fn)
    recipe.quantize(x)
    error = (recipe.restore(x) - x).abs()
    least = FORMATS["e4m3"].min_subnormal / 2 / (448 / x.abs().max())
    assert (error <= torch.maximum(x.abs() * 2.0**-4 * 1.001, least * 1.001)).all()
