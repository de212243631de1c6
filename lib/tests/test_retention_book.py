"""What the chapter on retention tells its readers to type runs, and is the recurrence."""

import os
import re
import subprocess
import sys

import torch

from weft.plan import retention

SEED = "import torch\ntorch.manual_seed(0)\n"
HOLDS = """
from weft.ref import retention as reference
wide = [x.double() for x in (q * K**-0.5, k, v)]
want, last = reference.recurrent(*wide, final=True)
torch.testing.assert_close(o.double(), want[:, T:], atol=1e-4, rtol=1e-4)
torch.testing.assert_close(S.double(), last, atol=1e-4, rtol=1e-4)
print("held")
"""


def test_the_recipe_runs_and_is_retention(root):
    page = (root / "book/retention.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert 10 <= len([line for line in recipe.splitlines() if line.strip()]) <= 25
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SEED + recipe + HOLDS],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "held\n", done.stderr[-2000:]


LAYER = """
import torch
from retention import layer, rotate
torch.manual_seed(0)
x, S = torch.randn(3, 50, 24), torch.zeros(3, 4, 6, 12)
widths = (24, 24), (24, 24), (24, 48), (24, 48), (48, 24)
weights = [torch.randn(a, b) * a**-0.5 for a, b in widths]
batch = torch.vmap(lambda x, S: layer(x, weights, S))
y, last = batch(x, S)
for i in range(3):
    torch.testing.assert_close((y[i], last[i]), layer(x[i], weights, S[i]))
narrow = rotate(x.bfloat16(), first=1000)
assert narrow.dtype == torch.float32
torch.testing.assert_close(narrow, rotate(x.bfloat16().float(), first=1000))
with torch.autocast("cpu", torch.bfloat16):
    rough, state = batch(x, S)
assert state.dtype == torch.float32
torch.testing.assert_close(rough.float(), y, atol=0.1, rtol=0.1)
print("held")
"""


def test_the_layer_is_batched_by_vmap_and_rotates_in_fp32_under_autocast(root):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LAYER],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        cwd=root / "book/programs",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "held\n", done.stderr[-2000:]


def test_the_decays_that_the_design_spreads_are_the_plans(root):
    page = (root / "book/retention.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"`g = (torch\.log1p\(.*?)`", page)
    given = eval(line, {"torch": torch})
    torch.testing.assert_close(given.exp(), torch.tensor(retention.spread(16, 32, 8192)))
