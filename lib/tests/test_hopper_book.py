"""What the chapter on Hopper tells its readers to type: the recipe, torch's names, the roles."""

import os
import re
import subprocess
import sys

import pytest
from torch.nn import attention

HOLDS = """
assert ran["CUDNN_ATTENTION"] == ran["EFFICIENT_ATTENTION"] == {"refused"}, ran
flash = "aten::_scaled_dot_product_flash_attention_for_cpu"
assert flash in ran["FLASH_ATTENTION"] and flash not in ran["MATH"]
assert {"aten::bmm", "aten::softmax"} <= ran["MATH"]
print("held")
"""


@pytest.fixture(scope="module")
def page(root) -> str:
    return (root / "book/hopper.md").read_text(encoding="utf-8")


def test_the_recipe_runs_and_tells_kernels_apart(page):
    (recipe,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert 10 <= len([line for line in recipe.splitlines() if line.strip()]) <= 25
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", recipe + HOLDS],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.startswith("FLASH_ATTENTION\n  ") and done.stdout.endswith("held\n"), (
        done.stderr[-2000:]
    )


def test_torch_knows_what_the_page_names(page):
    assert 'activate_flash_attention_impl("FA3")' in page
    assert attention.list_flash_attention_impls() == ["FA3", "FA4"]
    for name in ("FLASH", "CUDNN", "EFFICIENT"):
        assert f"`{name}_ATTENTION`" in page or f'"{name}_ATTENTION"' in page
        assert hasattr(attention.SDPBackend, f"{name}_ATTENTION")


def test_the_program_reports_what_the_page_says_of_it(root):
    """The prose draws conclusions from the order of instructions; here is what it relies on."""
    said = (root / "book/programs/hopper.txt").read_text(encoding="utf-8")
    alike, _, roles = said.partition("H100, in order:\n")[2].partition("H100 roles, in order:\n")
    names = [re.findall(r"^ +\d+ x (.*)$", part, flags=re.MULTILINE) for part in (alike, roles)]
    for order in names:
        before = [order[i - 1] for i, name in enumerate(order) if name == "exponential"]
        assert before and set(before) == {"wait for matmuls"}
    producer = names[1][: names[1].index("matmul, by a warpgroup")]
    assert producer.count("copy of a tile (TMA)") == 5 and "exponential" not in producer
    assert names[1].count("exponential") == 2  # one for each consumer
