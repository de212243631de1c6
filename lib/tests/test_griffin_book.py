"""What the chapter on Griffin tells its readers to type runs, and is the recurrence."""

import os
import re
import subprocess
import sys

SEED = "import torch\ntorch.manual_seed(0)\n"
HOLDS = """
from weft.ref import griffin as reference
gates = (z.sigmoid().double() for z in (i, r))
want, state = reference.rg_lru(x.double(), *gates, p.double(), final=True)
torch.testing.assert_close(h.double(), want, atol=1e-5, rtol=1e-5)
torch.testing.assert_close(last.double(), state, atol=1e-5, rtol=1e-5)
shut = torch.tensor(-0.0, requires_grad=True)  # log a of a channel that forgets nothing
free = -torch.expm1(2 * shut)
LINES
(steep,) = torch.autograd.grad(room, shut)
assert steep == -2000, steep
print("held")
"""


def test_the_recipe_runs_and_is_the_recurrence(root):
    page = (root / "book/griffin.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert 10 <= len([line for line in recipe.splitlines() if line.strip()]) <= 25
    lines = re.search(r"^root = .*\nroom = .*\n", recipe, flags=re.MULTILINE).group()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SEED + recipe + HOLDS.replace("LINES", lines)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "held\n", done.stderr[-2000:]
