"""solutions/ -> exercises/: what a student gets, made from what we keep.

    python -m weft.grade.build            write exercises/
    python -m weft.grade.build --check    name what is stale, missing or surplus, and fail

In Python files what stands between `# BEGIN SOLUTION` and `# END SOLUTION` goes: inside a function
a `raise NotImplementedError` takes its place, at the top level nothing does. Hidden tests go, with
a file that holds no others, and so do right/ and wrong/. The rest is copied byte for byte.
"""

import argparse
import ast
import re
import sys
from pathlib import Path

BLOCK = re.compile(
    r"^([ \t]*)# BEGIN SOLUTION\n.*?^[ \t]*# END SOLUTION\n", re.DOTALL | re.MULTILINE
)
STUB = "{0}# Your code here.\n{0}raise NotImplementedError\n"
NOT_GIVEN = {"right", "wrong", "__pycache__"}


class Filled(Exception):
    """An answers.py in exercises/ holds somebody's work."""


def without_solutions(text: str) -> str:
    """The text with each solution taken out.

    >>> print(without_solutions('''def f():
    ...     # BEGIN SOLUTION
    ...     return 1
    ...     # END SOLUTION
    ... '''))
    def f():
        # Your code here.
        raise NotImplementedError
    <BLANKLINE>
    """
    stripped = BLOCK.sub(lambda found: STUB.format(found[1]) if found[1] else "", text)
    if "BEGIN SOLUTION" in stripped or "END SOLUTION" in stripped:
        raise ValueError("a BEGIN SOLUTION without its END SOLUTION, or the other way round")
    return _tidy(stripped)


def without_hidden(text: str) -> str:
    """The text of a test file without its hidden tests; empty if it has no others."""
    tree, dropped, left = ast.parse(text), set(), 0
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node) == "pytestmark = pytest.mark.hidden":
            return ""
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        if any("mark.hidden" in ast.unparse(mark) for mark in node.decorator_list):
            dropped.update(range(node.decorator_list[0].lineno, node.end_lineno + 1))
        else:
            left += 1
    lines = enumerate(text.splitlines(keepends=True), 1)
    return _tidy("".join(line for i, line in lines if i not in dropped)) if left else ""


def _tidy(text: str) -> str:
    return re.sub(r"\n{4,}", "\n\n\n", text).rstrip() + "\n"


def exercises(solutions: Path) -> dict[Path, bytes]:
    """What exercises/ has to hold: each file's path within it and its bytes."""
    files = {}
    for source in sorted(path for path in solutions.rglob("*") if path.is_file()):
        name = source.relative_to(solutions)
        if NOT_GIVEN & set(name.parts) or any(part[0] == "." for part in name.parts):
            continue
        content = source.read_bytes()
        if source.suffix == ".py":
            strip = without_hidden if source.name.startswith("test_") else without_solutions
            content = strip(content.decode()).encode()
        if content:
            files[name] = content
    return files


def compare(root: Path) -> list[str]:
    """What is wrong with exercises/, one line a file; empty when it is as it would be made."""
    wanted, target = exercises(root / "solutions"), root / "exercises"
    there = {
        path.relative_to(target)
        for path in target.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = [f"missing: exercises/{name.as_posix()}" for name in wanted.keys() - there]
    found += [f"surplus: exercises/{name.as_posix()}" for name in there - wanted.keys()]
    for name in wanted.keys() & there:
        if (target / name).read_bytes() != wanted[name]:
            found.append(f"stale: exercises/{name.as_posix()}")
    return sorted(found)


def build(root: Path, force: bool = False) -> list[str]:
    """Bring exercises/ up to date; the changes made, one line a file.

    Raises Filled, before anything is written, if an answers.py there has been worked on: some
    function that the new one leaves open is not open in it. `force` overwrites it.
    """
    changes, target = compare(root), root / "exercises"
    wanted = exercises(root / "solutions")
    for name, content in wanted.items():
        mine = target / name
        if name.name == "answers.py" and mine.is_file() and not force:
            gone = _open(content.decode()) - _open(mine.read_text())
            if gone & _functions(mine.read_text()):
                raise Filled(f"{mine} has answers in it ({', '.join(sorted(gone))})")
    for change in changes:
        sort, _, file = change.partition(": ")
        path = root / file
        if sort == "surplus":
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[path.relative_to(target)])
    return changes


def _functions(text: str) -> set[str]:
    return set(re.findall(r"^def (\w+)", text, re.MULTILINE))


def _open(text: str) -> set[str]:
    """The functions whose body still is a stub, found in the text: it may not even parse."""
    bodies = re.split(r"^(?=def )", text, flags=re.MULTILINE)
    return {
        name for body in bodies if "raise NotImplementedError" in body for name in _functions(body)
    }


def main(arguments: list[str] | None = None) -> int:
    """0 when exercises/ is up to date at the end, 1 when it is not."""
    parser = argparse.ArgumentParser(
        prog="python -m weft.grade.build", description="make exercises/"
    )
    parser.add_argument("--check", action="store_true", help="change nothing, say what is stale")
    parser.add_argument("--force", action="store_true", help="overwrite answers in exercises/")
    parser.add_argument("--root", type=Path, default=Path(), help="the folder with solutions/")
    options = parser.parse_args(arguments)
    if not (options.root / "solutions").is_dir():
        print(f"error: no solutions/ in {options.root.resolve()}", file=sys.stderr)
        return 2
    try:
        changes = compare(options.root) if options.check else build(options.root, options.force)
    except Filled as error:
        print(f"error: {error}; --force overwrites them", file=sys.stderr)
        return 1
    for change in changes:
        print(change)
    if options.check and changes:
        print("exercises/ is not what solutions/ makes: python -m weft.grade.build")
    return int(bool(options.check and changes))


if __name__ == "__main__":
    sys.exit(main())
