"""The zoo: wrong answers that a good student might give, each with the tests it must fail.

A file in solutions/<stem>/wrong/ says in its docstring what the mistake is, lists in FAILS the
tests that it must fail (those that wait for a failed one included), and defines one function, or a
few, in place of the right ones. Everything else is the solution's.
"""

import ast
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wrong:
    """One wrong answer: its name, the mistake, the functions it replaces, the tests it fails."""

    name: str
    mistake: str
    replaces: tuple[str, ...]
    fails: frozenset[str]
    text: str

    def write(self, folder: Path, solution: Path) -> Path:
        """An answers.py in `folder`: the solution's text, then this one's, whose names win."""
        path = folder / "answers.py"
        path.write_text(f"{solution.read_text()}\n\n{self.text}")
        return path


def zoo(folder: Path) -> list[Wrong]:
    """The wrong answers of a topic, from solutions/<stem>/wrong/.

    Raises ValueError for one that does not say what it gets wrong, or fails nothing.
    """
    return [_wrong(path) for path in sorted((folder / "wrong").glob("*.py"))]


def _wrong(path: Path) -> Wrong:
    text = path.read_text()
    tree = ast.parse(text)
    mistake = ast.get_docstring(tree)
    fails = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FAILS"
    ]
    if not mistake or not fails or not fails[0]:
        raise ValueError(f"{path} must have a docstring and a FAILS that names tests")
    names = tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return Wrong(path.stem, mistake, names, frozenset(fails[0]), text)
