"""What the roofline chapter tells its readers to type runs, and counts what its page says."""

import os
import re
import subprocess
import sys

import pytest

WRITTEN = """
from torch.nn.functional import gelu as library_gelu
def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x**3)))
def softmax(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)
def norm(x, r, w):
    x = x + r
    return x, x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w
def mlp(x, a):
    return library_gelu(x @ a)
def broken(x):
    y = torch.tanh(x) * 2
    print(end="")
    return y + 1
def attention(q, k, v):
    s = 30 * torch.tanh(q @ k.mT / 240)
    return torch.softmax(s, -1) @ v
x, w, a = torch.randn(512, 256), torch.randn(256), torch.randn(256, 256)
q = torch.randn(8, 64, 32)
for run, *args in ((gelu, x), (softmax, x), (norm, x, x + 1, w), (mlp, x, a), (broken, x),
                   (attention, q, q, q)):
    with Traffic() as seen:
        run(*args)
    bound = walls(run, *args, rate=1.0, bandwidth=1.0, launch=1.0)
    assert bound["overhead"] == seen.kernels and bound["memory"] == seen.nbytes
    arrays = round(seen.nbytes / args[0].nbytes)
    print(seen.kernels, arrays, compiled_kernels(run, *args))
assert walls(mlp, x, a, rate=1.0)["compute"] == 2 * 512 * 256 * 256
meta = torch.empty(4096, 8192, device="meta")
assert walls(torch.mm, meta, meta.T, rate=1.0)["compute"] == 2 * 4096**2 * 8192
moved = torch.ones(10)
with Traffic() as seen:
    moved.exp_()
assert seen.nbytes == 2 * moved.nbytes
"""


@pytest.fixture
def page(root):
    return (root / "book/roofline.md").read_text(encoding="utf-8")


def test_the_recipe_counts_what_the_table_says(page, root, tmp_path):
    (recipe,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert 10 <= len([line for line in recipe.splitlines() if line.strip()]) <= 30
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", recipe + WRITTEN],
        env=os.environ
        | {
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        },
        cwd=root / "book/programs",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr[-2000:]
    table = page.partition("| written as |")[2].partition("\n\n")[0]
    rows = [line.split("|")[2:5] for line in table.splitlines()[2:]]
    said = [[cell.strip() for cell in cells] for cells in rows]
    counted = [line.split() for line in done.stdout.splitlines()]
    assert len(said) == len(counted) == 6
    for shown, found in zip(said, counted, strict=True):
        assert all(cell in ("–", value) for cell, value in zip(shown, found, strict=True))
