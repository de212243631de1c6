"""The chunked form over ranks: the whole's values and gradients, the plan's bytes, no more live."""

from functools import partial
from unittest.mock import Mock

import pytest
import torch

from weft.meter import live, traffic
from weft.nn.linear import mix
from weft.plan.linear import FACTORS, METHODS, sent
from weft.ref.linear import delta
from weft.run.linear import attention
from weft.run.world import launch

B, H, K, V = 2, 3, 4, 5
PARTS = {1: [5], 2: [4, 3], 3: [1, 7, 5]}  # tokens of each rank
FACTOR = {"plain": "none", "head": "head", "channel": "channel", "delta": "delta"}
FACTOR |= {"gated delta": "delta"}


def given(T, rule, dtype=torch.float64):
    """All tokens of a rule, by the arguments' names, the same on every rank; and a state."""
    dice = torch.Generator().manual_seed(T)

    def drawn(*shape):
        return torch.randn(shape, generator=dice, dtype=torch.float64).to(dtype)

    q, k, v = drawn(B, T, H, K), drawn(B, T, H, K), drawn(B, T, H, V)
    tensors = {"q": q, "k": k / k.norm(dim=-1, keepdim=True), "v": v}
    if rule in ("head", "gated delta"):
        tensors["log_decay"] = -drawn(B, T, H).abs()
    if rule == "channel":
        tensors["log_decay"] = -drawn(B, T, H, K).abs()
    if "delta" in rule:
        tensors["beta"] = 2 * drawn(B, T, H).sigmoid()
    return tensors, drawn(B, H, K, V)


def gradients(o, tensors, weights):
    """o's gradients under fixed weights, by name."""
    return dict(
        zip(tensors, torch.autograd.grad((o * weights).sum(), tensors.values()), strict=True)
    )


def compared(world, rule, method, starts):
    """How far values and gradients are from the whole's, and bytes sent with what the plan says."""
    parts = PARTS[world.size]
    begin, end = sum(parts[: world.rank]), sum(parts[: world.rank + 1])
    tensors, state = given(sum(parts), rule)
    weights = torch.randn(B, sum(parts), H, V, generator=torch.Generator().manual_seed(1)).double()
    whole = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    if starts:
        whole["initial"] = state.clone().requires_grad_()
    want, last = mix(**whole, final=True)
    wanted = gradients(want, whole, weights)

    mine = {n: x[:, begin:end].clone().requires_grad_() for n, x in tensors.items()}
    if starts and not world.rank:
        mine["initial"] = state.clone().requires_grad_()
    with traffic() as forward:
        o, after = attention(**mine, world=world, method=method, final=True)
    with traffic() as backward:
        found = gradients(o, mine, weights[:, begin:end])
    wrong = [(o - want[:, begin:end]).abs().max()]
    for name, gradient in found.items():
        part = slice(None) if name == "initial" else slice(begin, end)
        wrong.append((gradient - wanted[name][:, part]).abs().max())
    if world.rank == world.size - 1:
        wrong.append((after - last).abs().max())
    told = (world.size, world.rank, B, H, K, V, FACTOR[rule], method, 8)
    bytes_ = [sum(wire.bytes.values()) for wire in (forward, backward)]
    return max(wrong).item(), bytes_, [sent(*told), sent(*told, backward=True)]


def all_compared(world):
    cases = [(rule, method, starts) for rule in FACTOR for method in METHODS for starts in (0, 1)]
    return {case: compared(world, *case) for case in cases}


@pytest.mark.parametrize("n", PARTS)
def test_parts_of_the_tokens_give_the_wholes_values_and_gradients_and_send_the_plans_bytes(n):
    for found in launch(all_compared, n):
        for case, (wrong, measured, planned) in found.items():
            assert wrong < 1e-10, case
            assert measured == planned, case


def on_an_axis(world):
    """Two sequences side by side, each over an axis of two ranks, by a kernel that is passed in."""
    axis = world.grid(d=2, c=2).axis("c")
    tensors, _ = given(6 + world.rank // 2, "delta")
    want = mix(**tensors)
    part = {name: x.tensor_split(2, 1)[axis.rank] for name, x in tensors.items()}
    kernel = Mock(side_effect=partial(delta.chunked, chunk=2))
    got = attention(**part, world=axis, kernel=kernel)
    assert kernel.called
    return torch.allclose(got, want.tensor_split(2, 1)[axis.rank], rtol=0, atol=1e-10)


def test_the_ranks_may_be_an_axis_of_a_grid():
    assert all(launch(on_an_axis, 4))


def most_alive(world, rule, method, T=130):
    """The largest live bytes above the kernel's own of a step on T tokens of each rank."""
    tensors, _ = given(T, rule, torch.float32)
    tensors = {name: x.requires_grad_() for name, x in tensors.items()}

    def step(function, **how):
        with live() as memory:
            function(**tensors, **how).sum().backward()
        for x in tensors.values():
            x.grad = None
        return memory.peak

    return step(attention, world=world, method=method) - step(mix)


def all_alive(world):
    return {(r, m): most_alive(world, r, m) for r in FACTOR for m in METHODS}


def test_what_is_alive_besides_the_kernels_own_is_this_ranks_part_not_the_others():
    for n in (2, 3):
        for found in launch(all_alive, n):
            for (rule, method), over in found.items():
                copies = 8 if "delta" in rule else 2  # of q, and the kernel's K more columns
                assert over <= copies * 4 * B * 130 * H * K, (n, rule, method)


def test_what_a_rank_sends_is_told_by_hand():
    assert [sent(3, r, 1, 2, 4, 8) for r in range(3)] == [256, 256, 0]
    assert [sent(3, r, 1, 2, 4, 8, backward=True) for r in range(3)] == [0, 256, 256]
    more = {"none": 0, "head": 2, "channel": 8, "delta": 32}  # numbers of A in both heads
    for factor in FACTORS:
        gathered = {sent(3, r, 1, 2, 4, 8, factor, "gather") for r in range(3)}
        assert gathered == {2 * 4 * (64 + more[factor])}
    for wrong in ({"rank": 3}, {"factor": "row"}, {"method": "ring"}, {"V": 0}):
        (name,) = wrong
        with pytest.raises(ValueError, match=f"^{name} is"):
            sent(**({"n": 3, "rank": 0, "B": 1, "H": 2, "K": 4, "V": 8} | wrong))


def refused(world):
    """What rank 1 says of a state that is not its to give, and both of no tokens."""
    tensors, state = given(5, "plain")
    said = []
    for part, initial in ((slice(0), None), (slice(5), state)):
        if initial is None or world.rank:
            try:
                attention(
                    **{n: x[:, part] for n, x in tensors.items()}, world=world, initial=initial
                )
            except ValueError as error:
                said.append(str(error))
    return said


def test_what_does_not_fit_is_refused_before_anything_is_sent():
    empty = "q has 0 tokens, must have at least one on every rank"
    given_twice = "initial is given on rank 1, must be given on rank 0 alone"
    assert launch(refused, 2) == [[empty], [empty, given_twice]]
