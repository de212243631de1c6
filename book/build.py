"""Build the book into _build/html with warnings as errors: python book/build.py.

`jupyter-book build -W -n --keep-going .`, and three things that it leaves to its caller. Pages
hold numbers and pictures from weft.plan, so a change there makes Sphinx read all pages again.
After a failure it must read them again too, because it would skip the bad page and succeed. And
in a pipe, or under NO_COLOR, there is no colour.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
BUILT = "_build/.built"  # its date is that of the last build that succeeded
READ = "_build/.doctrees"  # what Sphinx remembers of the pages
COLOR = re.compile(r"\x1b\[[0-9;]*m")
SOURCES = ("lib/weft/**/*.py", "book/_ext/**/*.py", "book/measured/*.json", "_config.yml")


def newer(root: Path) -> Iterator[Path]:
    """The files behind the pages' numbers that are newer than the book."""
    built = root / BUILT
    since = built.stat().st_mtime if built.exists() else 0.0
    for pattern in SOURCES:
        yield from (path for path in root.glob(pattern) if path.stat().st_mtime > since)


def build(root: Path) -> bool:
    """Build the book of a tree; whether it went without a warning."""
    if any(newer(root)):
        shutil.rmtree(root / READ, ignore_errors=True)
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        with redirect_stdout(Plain(sys.stdout)), redirect_stderr(Plain(sys.stderr)):
            code = jupyter_book(root)
    else:
        code = jupyter_book(root)
    if code or not (root / "_build/html/index.html").exists():
        shutil.rmtree(root / READ, ignore_errors=True)
        return False
    (root / BUILT).touch()
    return True


def jupyter_book(root: Path) -> int | str | None:
    """Run Jupyter Book; its exit code, 0 or None where there was no warning."""
    from click.exceptions import ClickException
    from jupyter_book.cli.main import main

    arguments = ["build", "-W", "-n", "--keep-going", str(root)]
    try:
        return main.main(arguments, standalone_mode=False)
    except SystemExit as exit:
        return exit.code
    except (RuntimeError, ClickException) as error:
        print(error, file=sys.stderr)
        return 1


class Plain:
    """A stream without the colour codes that are written to it."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        """Write what is left of a text."""
        self.stream.write(COLOR.sub("", text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


if __name__ == "__main__":
    if not build(ROOT):
        print("the book does not build: the warnings above are errors", file=sys.stderr)
        sys.exit(1)
