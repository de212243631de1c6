"""What the roofline chapter tells its readers to type runs, and counts what its page says."""

import os
import re
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

WRITTEN = """
import contextlib, io
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
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        bound = walls(run, *args, rate=1.0, bandwidth=1.0, launch=1.0)
    kernels = len(printed.getvalue().splitlines())
    assert bound["overhead"] == kernels
    # Without arithmetic the bound is the bytes alone, at one byte in a second.
    with contextlib.redirect_stdout(printed):
        nbytes = walls(run, *args, rate=float("inf"), bandwidth=1.0)["chip"]
    print(kernels, round(nbytes / args[0].nbytes), compiled_kernels(run, *args))


def quiet(*args, **kwargs):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        bound = walls(*args, **kwargs)
    return bound["chip"], printed.getvalue().split()[::4]


assert quiet(torch.mm, x, a, rate=1.0) == (2 * 512 * 256 * 256, ["mm.default"])
meta = torch.empty(4096, 8192, device="meta")
assert quiet(torch.mm, meta, meta.T, rate=1.0)[0] == 2 * 4096**2 * 8192
assert quiet(torch.exp_, torch.ones(10), bandwidth=1.0)[0] == 2 * 40
# A slice is its own size; what is expanded, and a table that is looked up, are whole.
one, table = torch.ones(1, 1), torch.ones(100, 10)
assert quiet(lambda t: t[:7] + 1, table, bandwidth=1.0)[0] == 2 * 4 * 70
assert quiet(lambda t: t + one.expand(100, 10), table, bandwidth=1.0)[0] == 3 * 4 * 1000
looked_up = quiet(torch.nn.functional.embedding, torch.tensor([1, 2]), table, bandwidth=1.0)
assert looked_up[0] == 4 * 1000 + 2 * 8 + 2 * 4 * 10
# The larger wall of each operator, not of the sums.
in_turn, _ = quiet(mlp, x, a, rate=256.0, bandwidth=1.0)
assert in_turn == max(2 * 512 * 256, 4 * (2 * 512 * 256 + 256 * 256)) + 8 * 512 * 256
assert quiet(torch.nn.functional.linear, torch.ones(2, 3, 4), torch.ones(5, 4))[1] == ["mm.default"]
bf16 = meta.to(torch.bfloat16)
norm_bytes, steps = quiet(torch.nn.functional.rms_norm, bf16, (8192,), bf16[0], bandwidth=1.0)
assert len(steps) == 8 and round(norm_bytes / bf16.numel()) == 40
heads = torch.empty(1, 8, 512, 64, device="meta", dtype=torch.bfloat16)
assert len(quiet(torch.nn.functional.scaled_dot_product_attention, heads, heads, heads)[1]) == 10


def again(x):
    for _ in range(4):
        x = library_gelu(x @ a)
    return x


assert compiled_kernels(again, x) == 8
assert compiled_kernels(torch.nn.functional.scaled_dot_product_attention, *[q[None]] * 3) == 1
"""


@pytest.fixture
def page(root):
    return (root / "book/roofline.md").read_text(encoding="utf-8")


def test_the_recipe_counts_what_the_table_says(page, root, tmp_path):
    recipes = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert len(recipes) == 2
    assert all(len([x for x in one.splitlines() if x.strip()]) <= 30 for one in recipes)
    recipe = "\n".join(recipes)
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


def test_the_flop_counter_leaves_out_what_the_page_says(page):
    assert "In torch 2.13 `_grouped_mm`, so the experts of a mixture, counts nothing" in page
    x, heads = torch.ones(6, 4), torch.ones(1, 2, 8, 16)
    experts = torch.empty(2, 8, 8, device="meta", dtype=torch.bfloat16)
    rows = torch.empty(6, 8, device="meta", dtype=torch.bfloat16)
    ends = torch.tensor([3, 6], dtype=torch.int32, device="meta")
    assert flops(torch._grouped_mm, rows, experts, ends) == 0
    assert flops(torch.mv, x, x[0]) == flops(torch.add, x, x) == 0
    assert flops(torch.mm, x, x.T) == 2 * 6 * 6 * 4
    assert flops(scaled_dot_product_attention, heads, heads, heads) == 0
    there = heads.to("meta")
    whole = flops(scaled_dot_product_attention, there, there, there)
    causal = partial(scaled_dot_product_attention, is_causal=True)
    assert whole == flops(causal, there, there, there) == 2 * (2 * 2 * 8 * 8 * 16)


def flops(run, *args):
    with FlopCounterMode(display=False) as counter:
        run(*args)
    return counter.get_total_flops()
