"""What the backward chapter tells its readers to type: the recipe runs, its names are torch's."""

import inspect
import os
import re
import runpy
import subprocess
import sys

import pytest
import torch


@pytest.fixture(scope="module")
def page(root) -> str:
    return (root / "book/backward.md").read_text(encoding="utf-8")


def test_the_recipe_runs_and_gives_the_same_bits(page):
    (recipe,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert 10 <= len([line for line in recipe.splitlines() if line.strip()]) <= 26
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", recipe],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "same bits in 20 runs: True\n", done.stderr[-2000:]


def test_torch_does_with_fp8_and_determinism_what_the_page_says(page):
    """FlashAttention-3 behind SDPA: FP8 without gradients, and torch's switch reaches it."""
    from torch.nn.attention import _fa3, _fa4

    for module in (_fa3, _fa4):
        source = inspect.getsource(module)
        assert "deterministic = torch.are_deterministic_algorithms_enabled()" in source
    assert "FA3 backward does not support fp8" in inspect.getsource(_fa3)
    assert "FP8 through FlashAttention-3, without gradients" in page
    assert "`use_deterministic_algorithms` reaches the kernels" in page


def test_a_scale_that_is_a_power_of_two_saves_nothing(root):
    """Eight bits are then three bits of mantissa, whatever the block, but for subnormals."""
    program = runpy.run_path(str(root / "book/programs/backward.py"))
    torch.manual_seed(0)
    x = program["outliers"](128, 64).cpu()
    for rows in (1, 32, 128):
        blocks = x.unflatten(0, (-1, rows))
        largest = blocks.abs().amax((-2, -1), keepdim=True) / program["LARGEST"]
        scaled = blocks / torch.exp2(largest.log2().ceil())
        found = scaled.to(program["E4M3"]).float()
        normal = scaled.abs() >= 2**-6
        assert normal.float().mean() > 0.9
        assert torch.equal(found[normal], program["three_bits"](scaled)[normal])
        assert not torch.equal(found, scaled)
