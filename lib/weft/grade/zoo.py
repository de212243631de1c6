"""The zoo: wrong answers that a good student might give, each with the tests it must fail.

A file in solutions/<stem>/wrong/ says in its docstring what the mistake is, lists in FAILS the
tests that it must fail (those that wait for a failed one included), and defines one function, or a
few, in place of the right ones. Everything else is the solution's.
"""

import ast
from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path


@dataclass(frozen=True)
class Wrong:
    """One wrong answer: its name, the mistake, the functions it replaces, the tests it fails."""

    name: str
    mistake: str
    replaces: tuple[str, ...]
    fails: frozenset[str]
    text: str

    @property
    def function(self) -> str:
        """The function that it gets wrong, with which its name begins."""
        return next(name for name in self.replaces if self.name.startswith(name))


def zoo(folder: Path) -> list[Wrong]:
    """The wrong answers of a topic, from solutions/<stem>/wrong/.

    Raises ValueError for one that does not say what it gets wrong, or fails nothing.
    """
    return [_wrong(path) for path in sorted((folder / "wrong").glob("*.py"))]


def rounds(wrong: list[Wrong]) -> list[list[Wrong]]:
    """The first wrong answer to every function, then the second ones, and so on.

    Each test asks one function, so a round's answers are graded together, in a fraction of the
    time; what is lost must be the union of what each must lose.
    """
    by_function = defaultdict(list)
    for one in wrong:
        by_function[one.function].append(one)
    return [[one for one in row if one] for row in zip_longest(*by_function.values())]


def write_answers(folder: Path, solution: Path, wrong: list[Wrong]) -> Path:
    """An answers.py in `folder`: the solution's text, then the wrong ones', whose names win."""
    path = folder / "answers.py"
    path.write_text("\n\n".join([solution.read_text(), *(one.text for one in wrong)]))
    return path


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
