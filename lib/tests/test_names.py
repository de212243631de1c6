"""A class has a name of its own in the library, so that a search for it finds one thing."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest


def shared_names(source: Path) -> dict[str, list[str]]:
    """The class names that stand more than once below a folder, each with its places."""
    places = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(source).as_posix()}:{node.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_class_has_a_name_of_its_own(root):
    assert shared_names(root / "lib" / "weft") == {}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("class A: ...", "class B: ...", {}),
        ("class A: ...", "A = 1\n\n\ndef a(): ...", {}),
        ("class A: ...", "class B(A): ...", {}),
        ("class A: ...", "\nclass A: ...", {"A": ["a.py:1", "b/c.py:2"]}),
        ("class _A: ...", "if 1:\n    class _A: ...", {"_A": ["a.py:1", "b/c.py:2"]}),
        ("class A: ...", "def f():\n    class A: ...", {"A": ["a.py:1", "b/c.py:2"]}),
        ("class A:\n    class A: ...", "", {"A": ["a.py:1", "a.py:2"]}),
    ],
)
def test_a_name_that_stands_twice_is_seen(tmp_path, first, second, found):
    (tmp_path / "b").mkdir()
    (tmp_path / "a.py").write_text(first, encoding="utf-8")
    (tmp_path / "b" / "c.py").write_text(second, encoding="utf-8")
    assert shared_names(tmp_path) == found
