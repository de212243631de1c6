"""Experts over ranks: one process's numbers and gradients, the plan's bytes, nothing hangs."""

import re

import pytest
import torch

from weft.meter import traffic
from weft.nn.experts import SwitchMLP, balance
from weft.plan.experts import sent, sent_by
from weft.ref import experts as reference
from weft.run.experts import (
    ExpertParallel,
    gradient_norm,
    load,
    load_optimizer,
    parallelize,
    reduce_gradients,
    whole,
    whole_optimizer,
)
from weft.run.experts.exchange import Journey
from weft.run.world import launch

D, F = 6, 10
# Ranks; then experts, choices, capacity factor, and tokens of each rank.
CASES = {
    1: [(4, 2, None, [9]), (4, 1, 0.5, [9])],
    2: [(4, 2, 0.75, [9, 5]), (8, 1, None, [16, 16])],
    3: [(4, 2, None, [7, 0, 5]), (3, 3, None, [6, 6, 6]), (5, 2, 0.6, [0, 9, 3])],
    5: [(3, 2, None, [2, 4, 0, 5, 1]), (3, 1, 0.8, [8, 4, 0, 5, 1])],
}


def drawn(E, k, factor, tokens, world):
    """A whole layer, and the tokens of each rank with the gradients of what comes out."""
    torch.manual_seed(E)
    mlp = SwitchMLP(D, F, E, k, factor).double()
    mlp.router.data *= 4
    both = [(torch.randn(T, D).double(), torch.randn(T, D).double()) for T in tokens]
    return mlp, ExpertParallel(mlp, world), both


def compared(world, E, k, factor, tokens):
    """How far off values and gradients are, and bytes of both passes beside what must be sent."""
    mlp, layer, both = drawn(E, k, factor, tokens, world)
    x, dy = (z.requires_grad_() for z in both[world.rank])
    with traffic() as forward:
        y = layer(x.view(1, -1, D)).view(-1, D)
    with traffic() as backward:
        (y * dy).sum().backward()
    reduce_gradients(layer, world, op="sum")
    inputs = [one.detach().requires_grad_() for one, _ in both]
    wanted = [reference.switch(z, mlp.router, mlp.up, mlp.down, k, factor) for z in inputs]
    sum((one * given).sum() for one, (_, given) in zip(wanted, both, strict=True)).backward()
    here = [w.grad.tensor_split(world.size)[world.rank] for w in (mlp.up, mlp.down)]
    pairs = [(y, wanted[world.rank]), (x.grad, inputs[world.rank].grad)]
    pairs += zip([w.grad for w in (layer.router, layer.up, layer.down)], [mlp.router.grad, *here],
                 strict=True)  # fmt: skip
    wrong = max((a - b).abs().max().item() for a, b in pairs if a.numel())
    counted = [dict(wire.bytes) for wire in (forward, backward)]
    return wrong, counted, layer.routed.choices.tolist(), layer.kept.tolist()


def all_compared(world, cases):
    return [compared(world, *case) for case in cases]


@pytest.mark.parametrize("n", CASES)
def test_values_and_gradients_are_those_of_each_ranks_tokens_in_one_process(n):
    ranks = launch(all_compared, n, CASES[n])
    for i, (E, k, factor, tokens) in enumerate(CASES[n]):
        wrong, counted, choices, kept = zip(*(results[i] for results in ranks), strict=True)
        assert max(wrong) < 1e-10, (E, k, factor)
        assert all(one == choices[0] for one in choices) and sum(choices[0]) == k * sum(tokens)
        assert all(one == kept[0] for one in kept)
        assert (sum(map(sum, kept[0])) < k * sum(tokens)) == (factor is not None)
        for rank, both in enumerate(counted):
            told = sent_by(rank, kept[0], D, size=8)
            assert both == [{"all_to_all": told}] * 2
            if k == E and E % n == 0:  # the load is even
                assert told == sent(tokens[rank], D, n, k, size=8)


# --- a grid ---------------------------------------------------------------------------------------


def on_a_grid(world, axes, e):
    """Gradients of the mean of the data ranks' losses, against one process: how far off."""
    grid, d = world.grid(**axes), axes["r"] * e
    data = world.grid(d=d, t=axes["t"]).axis("d")
    torch.manual_seed(0)
    mlp = SwitchMLP(D, F, 4, 2).double()
    layer, xs = ExpertParallel(mlp, grid.axis("e")), torch.randn(d, 7, D).double()
    model = torch.nn.Sequential(torch.nn.Linear(D, D).double(), layer)
    alone = torch.nn.Sequential(torch.nn.Linear(D, D).double(), mlp)
    alone[0].load_state_dict(model[0].state_dict())
    model(xs[data.rank]).square().sum().backward()
    reduce_gradients(model, data, grid.axis("r"))
    (sum(alone(x).square().sum() for x in xs) / d).backward()
    place = grid.axis("e").rank
    here = [w.grad.tensor_split(e)[place] for w in (mlp.up, mlp.down)]
    wanted = [alone[0].weight.grad, alone[0].bias.grad, mlp.router.grad, *here]
    found = [w.grad for w in model.parameters()]
    every = [w.grad for w in alone.parameters()]
    found, wanted = [*found, gradient_norm(model)], [*wanted, torch.nn.utils.get_total_norm(every)]
    return max((a - b).abs().max().item() for a, b in zip(found, wanted, strict=True))


def on_grids(world):
    """Two copies of the experts, and two tensor ranks with the same tokens."""
    return [on_a_grid(world, {"r": r, "e": 2, "t": t}, 2) for r, t in ((2, 1), (1, 2))]


def test_gradients_are_the_mean_of_data_ranks_and_an_expert_divides_by_all_of_them():
    assert max(max(found) for found in launch(on_grids, 4)) < 1e-12


# --- beside, precision, kernels -------------------------------------------------------------------


def overlapped(world):
    """A shared expert beside the dispatch: what came after what, and how far gradients are off."""
    _, layer, both = drawn(4, 1, None, [6, 6, 6], world)
    x, order = both[world.rank][0].requires_grad_(), []
    shared = torch.nn.Linear(D, D).double()
    hook = shared.register_full_backward_hook(lambda *_: order.append("shared's backward"))
    begin, end = Journey.begin, Journey.end
    Journey.begin = lambda *given, **how: (order.append("leave"), begin(*given, **how))[1]
    Journey.end = lambda journey: (order.append("arrive"), end(journey))[1]
    y, found = layer(x, beside=lambda: (order.append("shared"), shared(x))[1])
    (y + found).square().sum().backward()
    Journey.begin, Journey.end = begin, end
    hook.remove()
    gradient, x.grad = x.grad, None
    (layer(x) + shared(x)).square().sum().backward()
    return order, (gradient - x.grad).abs().max().item()


def test_what_is_beside_is_computed_while_rows_travel_forward_and_backward():
    combine = ["leave", "arrive"]
    forward = ["leave", "shared", "arrive", *combine]
    for order, wrong in launch(overlapped, 3):
        assert order == [*forward, *combine, "leave", "shared's backward", "arrive"]
        assert wrong < 1e-12


def two_microbatches(world):
    """A whole layer's work for another microbatch beside the dispatch of one: how far off."""
    mlp, layer, both = drawn(4, 2, None, [6, 6, 6], world)
    x, other = (z.requires_grad_() for z in both[world.rank])
    ys = layer(x, beside=lambda: layer(other))
    torch.stack(ys).square().sum().backward()
    found = [*ys, x.grad, other.grad]
    x.grad = other.grad = None
    ys = mlp(x), mlp(other)
    torch.stack(ys).square().sum().backward()
    pairs = zip(found, [*ys, x.grad, other.grad], strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def test_another_microbatch_may_be_beside():
    assert max(launch(two_microbatches, 3)) < 1e-10


def lowered(world):
    """bf16, and a function in the place of the loop: values, dtypes, the rows that it is given."""
    mlp, _, both = drawn(4, 2, None, [6, 6], world)
    given = []

    def kernel(x, expert, weight, kept, up, down):
        given.append((len(x), weight.eq(1).all().item(), kept.all().item(), len(up)))
        return reference.mlp(x, expert, weight, kept, up, down)

    mlp.kernel, x = kernel, both[world.rank][0]
    exact = ExpertParallel(mlp, world)(x)
    half = ExpertParallel(mlp.bfloat16(), world)(x.bfloat16())
    return given, half.dtype == torch.bfloat16, (half - exact).abs().max() / exact.abs().max()


def test_a_kernel_gets_a_ranks_rows_with_weight_1_and_half_precision_comes_back():
    ranks = launch(lowered, 2)
    assert sum(given[0][0] for given, *_ in ranks) == 2 * 12  # choices of all tokens
    for given, same, wrong in ranks:
        assert all(one and kept and mine == 2 for _, one, kept, mine in given)
        assert same and wrong < 0.03


# --- whole states ---------------------------------------------------------------------------------


def learned(world, steps, kept=None):
    """Weights and moments of whole experts after some more steps on tokens dealt to the ranks."""
    torch.manual_seed(3 if kept is None else 4)
    model = torch.nn.Sequential(SwitchMLP(D, F, 4), SwitchMLP(D, F, 5, 2)).double()
    undivided = model.state_dict()
    optimizer = torch.optim.Adam(parallelize(model, world).parameters())
    if kept is not None:
        weights, moments, _ = kept
        load(model, weights)
        load_optimizer(model, optimizer, moments)
        with pytest.raises(ValueError, match=r"state has no such tensor as 1\.up, must have"):
            load(model, {name: x for name, x in weights.items() if name != "1.up"})
        with pytest.raises(ValueError, match=r"state has shape \(4, 6, 10\) for 1"):
            load(model, weights | {"1.up": weights["0.up"]})
    torch.manual_seed(5)
    x = torch.randn(12, D).double().tensor_split(world.size)[world.rank]
    for _ in range(steps):
        model(x).square().sum().backward()
        reduce_gradients(model, world, op="sum")
        optimizer.step()
        optimizer.zero_grad()
    return whole(model), whole_optimizer(model, optimizer), undivided


def test_a_training_goes_on_from_whole_states_on_another_number_of_ranks():
    (begun, _, undivided), *_ = launch(learned, 3, 0)
    assert begun.keys() == undivided.keys()
    assert all(x.equal(undivided[name]) for name, x in begun.items())
    first, *_ = launch(learned, 3, 2)
    wanted, *_ = launch(learned, 3, 4)
    for found in (*launch(learned, 2, 2, first), *launch(learned, 1, 2, first)):
        torch.testing.assert_close(found[0], wanted[0])
        torch.testing.assert_close(found[1]["state"], wanted[1]["state"])


# --- balance --------------------------------------------------------------------------------------


def balanced(world):
    """The mean over ranks of the balance loss, with gradients, against that of all tokens."""
    mlp, layer, both = drawn(4, 2, None, [6, 6, 6], world)
    layer(both[world.rank][0])
    mine = balance(layer.routed)
    mine.backward()
    reduce_gradients(layer, world)
    torch.distributed.all_reduce(mine.data)
    mlp(torch.cat([x for x, _ in both]))
    whole = balance(mlp.routed)
    whole.backward()
    return (mine / 3 - whole).item(), (layer.router.grad - mlp.router.grad).abs().max().item()


def test_the_mean_of_the_ranks_balance_losses_is_that_of_all_tokens():
    assert all(max(map(abs, wrong)) < 1e-6 for wrong in launch(balanced, 3))


# --- bad input ------------------------------------------------------------------------------------


def refused(world, call, odd):
    """What each rank is told when rank `odd`, or with None every rank, calls it wrongly."""
    torch.manual_seed(0)
    layer = ExpertParallel(SwitchMLP(D, F, 4), world)
    with pytest.raises(ValueError) as told:
        call(layer, world, odd is None or world.rank == odd)
    layer(torch.ones(2, D))  # and all are still in step
    return str(told.value)


def widths(layer, world, wrong):
    layer(torch.ones(3, D + wrong))


def models(layer, world, wrong):
    ExpertParallel(SwitchMLP(D + wrong, F, 4), world)


def routers(layer, world, wrong):
    torch.manual_seed(wrong)
    ExpertParallel(SwitchMLP(D, F, 4), world)


def scores(layer, world, wrong):
    layer(torch.full((2, D), float("nan") if wrong else 1.0))


def factors(layer, world, wrong):
    ExpertParallel(SwitchMLP(D, F, 4), world, factor=0 if wrong else 1.0)


def capacities(layer, world, wrong):
    ExpertParallel(SwitchMLP(D, F, 4), world, factor=2.0 if wrong else 1.0)


def most(layer, world, wrong):
    ExpertParallel(SwitchMLP(D, F, 4, k=5), world)


def trained(layer, world, wrong):
    layer(torch.ones(2, D, requires_grad=wrong))


def taken(layer, world, wrong):
    with torch.set_grad_enabled(not wrong):
        layer(torch.ones(2, D))


def besides(layer, world, wrong):
    layer(torch.ones(2, D), beside=3 if wrong else None)


def copies(layer, world, wrong):
    reduce_gradients(layer, world, world)


BAD = {
    (widths, 2): r"x has shape \[3, 7\], must be \[3, 6\]: \[.., D\] of mlp.*",
    (models, 1): "width is 6 on rank 0 and 7 on rank 1, must be the same on every rank",
    (routers, 1): "the digest of mlp's router is .* on rank 0 and .* on rank 1, must be .*",
    (scores, 0): r"x has tokens whose scores are NaN or infinite, must have none.*",
    (factors, 1): r"factor is 0, must be a number above 0 and finite.*",
    (capacities, 2): "factor is 1.0 on rank 0 and 2.0 on rank 2, must be the same on every rank",
    (most, None): "k is 5, must be at most experts = 4",
    (trained, 1): "x's requires_grad is False on rank 0 and True on rank 1, must be the same .*",
    (taken, 0): "whether gradients are taken is False on rank 0 and True on rank 1, must be .*",
    (besides, 2): r"beside is 3, must be a function or None.*",
    (copies, None): "replicas has 3 ranks, must have 3 / 3: all of data over the ranks that .*",
}


def all_refused(world, cases):
    return [refused(world, *case) for case in cases]


def test_what_is_wrong_is_said_on_all_ranks_and_nothing_hangs():
    for told in launch(all_refused, 3, list(BAD), timeout=60):
        for says, words in zip(BAD.values(), told, strict=True):
            assert re.fullmatch(says, words), words
