"""What the chapter on linear attention tells its readers to type runs, and is the recurrence."""

import os
import re
import subprocess
import sys

SEED = "import torch\ntorch.manual_seed(0)\n"
HOLDS = """
from weft.ref.linear import delta as reference
layer, given = GatedDeltaNet(D=24, H=3, K=8, V=5), []
kept = rule
rule = lambda *x: given.extend(x) or kept(*x)
x = torch.randn(2, 100, 24)
start = torch.zeros(2, 3, 3 * (8 + 8 + 5)), torch.zeros(2, 3, 8, 5)
y = layer(x, *start)[0]
q, k, v, g, beta, S = (t.double() for t in given)
assert q.shape == (2, 100, 3, 8) and v.shape == (2, 100, 3, 5) and g.max() < 0
for unit in (q, k):
    torch.testing.assert_close(unit.norm(dim=-1), torch.ones_like(beta), atol=1e-5, rtol=0)
want = reference.recurrent(q, k, v, beta, g)
torch.testing.assert_close(kept(*given)[0].double(), want, atol=1e-4, rtol=1e-4)
later = x.clone()
later[:, 60:] += 1
moved = layer(later, *start)[0]
torch.testing.assert_close(moved[:, :60], y[:, :60])
assert (moved[:, 60] - y[:, 60]).abs().max() > 1e-3
y.sum().backward()
assert all(weight.grad.isfinite().all() for weight in layer.parameters())
with torch.autocast("cpu", torch.bfloat16):
    rough, _, S = layer(x, *start)
assert S.dtype == torch.float32
torch.testing.assert_close(rough.float(), y, atol=0.05, rtol=0.05)
layer, x, past, parts = layer.double(), x.double(), [t.double() for t in start], []
whole = layer(x, *past)[0]
for piece in x.split([2, 68, *[1] * 30], 1):
    part, *past = layer(piece, *past)
    parts.append(part)
torch.testing.assert_close(torch.cat(parts, 1), whole)
print("held")
"""


def test_the_recipe_is_a_causal_layer_around_the_gated_delta_rule(root):
    page = (root / "book/linear.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert 10 <= len([line for line in recipe.splitlines() if line.strip()]) <= 30
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SEED + recipe + HOLDS],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        cwd=root / "book/programs",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "held\n", done.stderr[-2000:]
