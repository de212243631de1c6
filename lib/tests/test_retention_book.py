"""What the chapter on retention tells its readers to type runs, and is the recurrence."""

import os
import re
import subprocess
import sys

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
