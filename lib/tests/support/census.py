"""Hold what has run against what is written: python lib/tests/support/census.py FOLDER.

Reads pytest's JUnit files in FOLDER. Each test function of lib/tests, each docstring of lib/weft
with an example in it, and each code cell of a notebook must be among them. Only a test that needs
a GPU may have been skipped where CI=true; elsewhere the others that were are named.
"""

import ast
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[3]
DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Case(NamedTuple):
    """One test as pytest reports it; `skipped` is why it was, or None where it ran."""

    file: str
    name: str
    skipped: str | None


def ran(folder: Path) -> list[Case]:
    """The tests in the JUnit files of a folder."""
    cases = []
    for report in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            skip = case.find("skipped")
            reason = None if skip is None else skip.get("message", "")
            cases.append(Case(case.get("file", ""), case.get("name", ""), reason))
    return cases


def written(root: Path) -> Counter[tuple[str, str]]:
    """How often each test that somebody wrote must run at least: (file, name) -> times."""
    wanted: Counter[tuple[str, str]] = Counter()
    for path in sorted((root / "lib/tests").glob("test_*.py")):
        for name in definitions(path):
            if name.rpartition(".")[2].startswith("test_"):
                wanted[path.relative_to(root).as_posix(), name.rpartition(".")[2]] += 1
    for path in sorted((root / "lib/weft").rglob("*.py")):
        module = ".".join(path.relative_to(root / "lib").with_suffix("").parts)
        for name in examples(path):
            full = f"{module.removesuffix('.__init__')}.{name}".rstrip(".")
            wanted[path.relative_to(root).as_posix(), full] += 1
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for number in range(sum(cell["cell_type"] == "code" for cell in cells)):
            wanted[path.relative_to(root).as_posix(), f"Cell {number}"] += 1
    return wanted


def definitions(path: Path) -> Iterator[str]:
    """The qualified names of the functions at the top of a file and in its classes."""
    for name, node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef | ast.Module):
            yield name


def examples(path: Path) -> Iterator[str]:
    """The qualified names of what has a docstring with an example in it."""
    for name, node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if ">>>" in (ast.get_docstring(node) or ""):
            yield name


def nodes(module: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """A module, its functions, its classes and their methods, with their qualified names."""
    yield "", module
    open_nodes: list[tuple[str, ast.AST]] = [("", module)]
    while open_nodes:
        outer, node = open_nodes.pop()
        for child in node.body:
            if isinstance(child, DEFINITION):
                yield f"{outer}{child.name}", child
                if isinstance(child, ast.ClassDef):
                    open_nodes.append((f"{outer}{child.name}.", child))


def problems(cases: list[Case], wanted: Counter[tuple[str, str]], strict: bool) -> list[str]:
    """A line for each test that did not run, and for each that should not have been skipped."""
    seen = Counter((case.file, case.name.partition("[")[0]) for case in cases)
    lines = []
    for (file, name), times in sorted(wanted.items()):
        if seen[file, name] < times:
            lines.append(f"{file}: {name} did not run")
    if strict:
        for case in cases:
            if case.skipped is not None and "needs a GPU" not in case.skipped:
                lines.append(f"{case.file}: {case.name} was skipped: {case.skipped}")
    return lines


def main(arguments: list[str]) -> int:
    """Print the count, and what is missing from it."""
    cases = ran(Path(arguments[0]))
    lines = problems(cases, written(ROOT), strict=os.environ.get("CI") == "true")
    for line in lines:
        print(line, file=sys.stderr)
    skips = Counter(case.skipped for case in cases if case.skipped is not None)
    done = len(cases) - sum(skips.values())
    print(f"{done} tests ran", *(f"{n} skipped ({why})" for why, n in skips.items()), sep=", ")
    return 1 if lines or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
