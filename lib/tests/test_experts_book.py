"""What the chapter on experts tells its readers to type routes, computes and balances."""

import re

import pytest
import torch
from torch.nn import functional as F


@pytest.fixture(scope="module")
def recipe(root):
    """The names that the page's recipe defines."""
    page = (root / "book/experts.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    body = found.split("class Experts")[1]
    assert 10 <= len([line for line in body.splitlines() if line.strip()]) <= 31
    names = {}
    exec(found, names)
    return names


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
        rows.append(sum(made) / scores[t, best].sum())
    return torch.stack(rows)


def drawn(recipe, experts=5, k=2):
    torch.manual_seed(0)
    moe = recipe["Experts"](width=16, hidden=24, experts=experts, k=k)
    with torch.no_grad():
        for p in moe.parameters():
            p.copy_(torch.randn_like(p) / 4)
    return moe, torch.randn(37, 16, requires_grad=True)


def test_the_recipe_is_its_experts_one_by_one_with_gradients(recipe):
    moe, x = drawn(recipe)
    moe.bias[3] = -2.0  # nobody's: its gradient is zero
    given, dy = [x, *moe.parameters()], torch.randn(37, 16)
    y, wanted = moe(x), one_by_one(moe, x)
    torch.testing.assert_close(y, wanted, atol=1e-5, rtol=1e-5)
    found = torch.autograd.grad(y, given, dy)
    for one, other in zip(found, torch.autograd.grad(wanted, given, dy), strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)
    assert not found[2][3].any() and moe.counts[3] == 0


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
