"""What the chapter on experts tells its readers to type routes, computes and balances."""

import re

import pytest
import torch
from torch.nn import functional as F

from weft.run.world import launch

EVERY = "Experts", "ShardedExperts"  # the recipe's classes, and how long each may be
LONGEST = 43, 19


def read(page):
    """The names that the page's recipe defines."""
    parts = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    for part, name, most in zip(parts, EVERY, LONGEST, strict=True):
        body = part.split(f"class {name}(")[1]
        assert 10 <= len([line for line in body.splitlines() if line.strip()]) <= most
    names = {}
    exec("".join(parts), names)
    names["Experts"].dtype = torch.float32  # of a CPU's tests
    return names


@pytest.fixture(scope="module")
def page(root):
    return (root / "book/experts.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recipe(page):
    return read(page)


def one_by_one(moe, x):
    """Each token's chosen experts, weighed by its scores alone."""
    scores = (x @ moe.router.weight.T).sigmoid()
    rows = []
    for t in range(len(x)):
        best = (scores[t] + moe.bias).topk(moe.k).indices
        made = []
        for e in best:
            gate, up = (x[t] @ moe.up[e]).chunk(2)
            made.append(scores[t, e] * ((F.silu(gate) * up) @ moe.down[e]))
        rows.append(sum(made) / (scores[t, best].sum() if moe.k > 1 else 1))
    return torch.stack(rows)


def drawn(recipe, experts=5, k=2):
    torch.manual_seed(0)
    moe = recipe["Experts"](width=16, hidden=24, experts=experts, k=k)
    with torch.no_grad():
        for p in moe.parameters():
            p.copy_(torch.randn_like(p) / 4)
    return moe, torch.randn(37, 16, requires_grad=True)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_recipe_is_its_experts_one_by_one_with_gradients(recipe, k):
    moe, x = drawn(recipe, k=k)
    moe.bias[3] = -2.0  # nobody's: its gradient is zero
    given, dy = [x, *moe.parameters()], torch.randn(37, 16)
    y, wanted = moe(x), one_by_one(moe, x)
    torch.testing.assert_close(y, wanted, atol=1e-5, rtol=1e-5)
    found = torch.autograd.grad(y, given, dy)
    for one, other in zip(found, torch.autograd.grad(wanted, given, dy), strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)
    assert k == 5 or (not found[2][3].any() and moe.counts[3] == 0)
    assert found[1].norm() > 0.1  # the router's, for k = 1 too
    x = x.detach()[:36]
    torch.testing.assert_close(moe(x.view(2, 18, 16)), moe(x).view(2, 18, 16))


def test_only_training_is_counted_and_what_must_be_fp32_is(recipe):
    moe, x = drawn(recipe)
    moe.eval()(x)
    assert not moe.counts.any()
    with torch.autocast("cpu", torch.bfloat16):
        y = moe.train()(x)
    torch.testing.assert_close(y, moe(x))
    moe.dtype = torch.bfloat16
    torch.testing.assert_close(moe(x.bfloat16()).float(), y, atol=0.05, rtol=0.05)
    torch.testing.assert_close(moe(x), y, atol=0.05, rtol=0.05)
    with pytest.raises(AssertionError):
        moe.bfloat16().rebalance()


def over_ranks(world, page, k):
    """How far a rank's part of the layer is from the whole one's, and how its bias moves."""
    recipe, n = read(page), world.size
    whole, _ = drawn(recipe, 2 * n, k)
    whole.bias[2:4] = -2.0  # rank 1 is sent nothing
    mine = recipe["ShardedExperts"](16, 24, 2 * n, k, torch.distributed.group.WORLD)
    state = whole.state_dict()
    for name in ("up", "down"):
        state[name] = state[name].chunk(n)[world.rank]
    mine.load_state_dict(state)
    xs, dys = torch.randn(2, n, 3, 7, 16)
    xs.requires_grad_()
    x = xs.detach()[world.rank].requires_grad_()
    y, wanted = mine(x), whole(xs)
    (wanted * dys).sum().backward()
    (y * dys[world.rank]).sum().backward()
    torch.distributed.all_reduce(mine.router.weight.grad)
    pairs = [(y, wanted[world.rank]), (x.grad, xs.grad[world.rank])]
    pairs.append((mine.router.weight.grad, whole.router.weight.grad))
    for name in ("up", "down"):
        expected = getattr(whole, name).grad.chunk(n)[world.rank]
        pairs.append((getattr(mine, name).grad, expected))
    wrong = max((a - b).abs().max().item() for a, b in pairs)
    before = whole.bias.clone()
    mine.rebalance()
    signs = (whole.counts.mean() - whole.counts).sign()
    torch.testing.assert_close(mine.bias, before + 1e-3 * signs)
    return wrong


@pytest.mark.parametrize("k", [1, 3])
def test_over_ranks_the_recipe_is_one_process(page, k):
    assert max(launch(over_ranks, 4, page, k)) < 1e-5


def test_the_bias_evens_loads_and_does_not_weigh(recipe):
    moe, x = drawn(recipe)
    busiest = []
    for _ in range(40):
        moe(x)
        busiest.append(moe.counts.max().item())
        assert moe.counts.sum() == 2 * 37
        moe.rebalance(speed=0.02)
        assert not moe.counts.any()
    assert busiest[0] > 20 and sum(busiest[-20:]) / 20 < 18  # where 14.8 is even
    before = moe(x)
    moe.bias += 0.5  # the same for all: the same choices
    torch.testing.assert_close(moe(x), before)


def test_with_one_expert_renormalised_weights_leave_the_router_no_gradient():
    """What the page warns of: p / p."""
    torch.manual_seed(0)
    x, router = torch.randn(6, 4), torch.randn(4, 3, requires_grad=True)
    p = (x @ router).softmax(-1).amax(-1, keepdim=True)
    made = torch.randn(6, 4)
    (frozen,) = torch.autograd.grad((p / p * made).sum(), router, retain_graph=True)
    (learns,) = torch.autograd.grad((p * made).sum(), router)
    assert frozen.abs().max() < 1e-6 < learns.abs().max()


def test_the_gradient_of_a_score_is_the_pages():
    torch.manual_seed(1)
    s, made, g = torch.randn(5, requires_grad=True), torch.randn(7), torch.randn(7)
    p = s.softmax(0)
    c = int(p.argmax())
    (found,) = torch.autograd.grad((p[c] * made) @ g, s)
    delta = F.one_hot(torch.tensor(c), 5)
    torch.testing.assert_close(found, (g @ made) * p[c] * (delta - p))
