"""What the chapter on decoding tells its readers to type is attention, and the model's chances."""

import re

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from weft.plan.decode import requests, serve


@pytest.fixture(scope="module")
def names(root):
    """What the page's two pieces of code define."""
    page = (root / "book/decode.md").read_text(encoding="utf-8")
    found = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
        exec(code, found)
    return found


def test_the_recipe_is_attention_over_each_sequence(names):
    torch.manual_seed(0)
    B, H, G, K, block, most, count = 3, 8, 2, 4, 4, 5, 20
    layer = names["PagedLayer"](count, block, G, K, dtype=torch.float64)
    table = torch.randperm(count)[: B * most].view(B, most)
    begins, steps = torch.tensor([0, 3, 9]), 8  # the last one fills four blocks and one slot
    drawn = torch.randn(3, B, int(begins.max()) + steps, H, K, dtype=torch.float64)
    q, k, v = drawn[0], drawn[1, :, :, :G], drawn[2, :, :, :G]
    for b, begin in enumerate(begins.tolist()):  # what was there before
        for at in range(begin):
            alone = torch.tensor([at + 1])
            layer(q[b, at][None], k[b, at][None], v[b, at][None], table[b][None], alone)
    for i in range(steps):
        at = begins + i
        row = torch.arange(B)
        found = layer(q[row, at], k[row, at], v[row, at], table, at + 1)
        for b, last in enumerate(at.tolist()):
            whole = (x[b, : last + 1].transpose(0, 1)[None] for x in (k, v))
            right = scaled_dot_product_attention(q[b, last][None, :, None], *whole, enable_gqa=True)
            torch.testing.assert_close(found[b], right[0, :, 0])


def test_guesses_leave_the_models_chances_as_they_are(names):
    torch.manual_seed(0)
    p = torch.tensor([[0.7, 0.2, 0.1, 0.0]])
    q = torch.tensor([[0.4, 0.1, 0.3, 0.2], [0.25, 0.25, 0.25, 0.25]])
    counts, stood = torch.zeros(4), 0
    for _ in range(4000):
        guess = torch.multinomial(p[0], 1).tolist()
        kept, token = names["accept"](guess, p, q)
        stood += kept
        counts[guess[0] if kept else token] += 1
    assert (counts / 4000 - q[0]).abs().max() < 0.03
    assert abs(stood / 4000 - torch.minimum(p[0], q[0]).sum().item()) < 0.03


def test_blocks_fill_the_cache_of_the_picture_and_end_first(root):
    page = (root / "book/decode.md").read_text(encoding="utf-8")
    (drawn,) = re.findall(r"decode\.leases_svg\((\[.*\])\)", page)
    reserved, exact, paged = eval(drawn, {"serve": serve, "requests": requests})
    assert paged.steps < exact.steps < reserved.steps
    filled = [served.shares["used"] for served in (reserved, exact, paged)]
    assert filled == sorted(filled) and filled[2] > 0.8 > 0.5 > filled[0]
    assert {moment.running for moment in reserved.crowded} == {2}
