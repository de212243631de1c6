"""What the chapter on collectives tells its readers to type: the recipe runs and says busbw."""

import re

import pytest
import torch

from weft.plan.collectives import bus_factor
from weft.run.world import launch


@pytest.fixture(scope="module")
def recipe(root):
    page = (root / "book/collectives.md").read_text(encoding="utf-8")
    found = re.search(r"^:name: collectives-recipe\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return found[1]


def test_the_recipe_is_short(recipe):
    body = recipe[recipe.index("def bus_bandwidth") :]
    assert 10 <= len([line for line in body.splitlines() if line.strip()]) <= 28


def measured(world, recipe, op, nbytes):
    names = {}
    exec(recipe, names)
    return names["bus_bandwidth"](op, nbytes, repeat=2)


@pytest.mark.parametrize("nbytes", [1, 4 * 1000])
@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
def test_the_recipe_measures_busbw(recipe, op, nbytes):
    n = 3
    found = launch(measured, n, recipe, op, nbytes, backend="gloo")
    assert len(set(found)) == 1  # the slowest rank's, on all
    rate, ms = found[0]
    sent = 4 * max(nbytes // 4 // n, 1) * n * bus_factor(op, n)  # never an empty tensor
    assert rate * 1e9 * ms / 1e3 == pytest.approx(sent, rel=1e-3)
    assert torch.isfinite(torch.tensor(found[0])).all()


@pytest.mark.parametrize("call", ["all_gather_single", "reduce_scatter_single"])
def test_the_other_calls_of_the_recipe_run(root, recipe, call):
    page = (root / "book/collectives.md").read_text(encoding="utf-8")
    told = re.search(rf"`(dist\.{call}\(.*?\))`", page)[1]
    mended = recipe.replace("dist.all_to_all_single(y, x, group=group)", told)
    assert mended != recipe
    found = launch(measured, 3, mended, "all_to_all", 4000, backend="gloo")
    assert all(rate > 0 for rate, _ in found)


def test_no_record_of_ours_is_from_a_gpu_while_the_page_says_so(root):
    page = (root / "book/collectives.md").read_text(encoding="utf-8")
    assert "Nothing here was measured by us on NVLink or InfiniBand." in page
    records = list((root / "book/measured").glob("collectives-*.json"))
    assert records and {path.suffixes[0] for path in records} == {".cpu"}
