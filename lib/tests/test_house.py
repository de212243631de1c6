"""The map in the README is the tree's, every empty cell has its reason, every path is there."""

import re
from pathlib import Path

import house
import pytest


@pytest.fixture(scope="module")
def readme(root) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


def test_the_readme_shows_the_house_as_it_is(root, readme):
    assert house.renewed(readme, root) == readme, "run python lib/tests/support/house.py --write"


def test_every_empty_cell_has_a_reason_and_nothing_else_has(root):
    told = {stem: set(layers) for stem, layers in house.EMPTY.items() if stem in house.topics(root)}
    assert told == house.empty_cells(root)


def test_a_topic_that_comes_or_goes_makes_the_map_stale(root, readme, tmp_path):
    (tmp_path / "_toc.yml").write_text((root / "_toc.yml").read_text())
    for layer in house.LAYERS:
        folder = tmp_path / "lib/weft" / layer
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text((root / "lib/weft" / layer / "__init__.py").read_text())
    (tmp_path / "lib/weft/plan/zero.py").touch()
    assert house.topics(tmp_path) == ["zero"]
    assert house.renewed(readme, tmp_path) != readme
    assert "| `zero` | ● |  |" in house.made(tmp_path)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_path_that_is_named_is_there(root, name):
    """Where `tensor` stands for a topic to come, its folder is."""
    text = (root / name).read_text(encoding="utf-8")
    named = re.findall(r"`((?:lib|book|notebooks|exercises|solutions)/[\w/.*-]*)`", text)
    assert named
    paths = [str(Path(path).parent) if "tensor" in path else path.rstrip("/") for path in named]
    assert [path for path in paths if not any(root.glob(path))] == []
