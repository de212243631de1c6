"""Build the book into _build/html with warnings as errors: python book/build.py.

`--quiet` shows how far it has come instead of Sphinx's lines, which it shows where it fails.

`jupyter-book build -W -n --keep-going .`, and three things that it leaves to its caller. Pages
hold numbers and pictures from weft.plan, so a change there makes Sphinx read all pages again.
After a failure it must read them again too, because it would skip the bad page and succeed. And
in a pipe, or under NO_COLOR, there is no colour.
"""

import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

from weft.terminal import working

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


def build(root: Path, *options: str, makes: str = "html/index.html") -> bool:
    """Build the book of a tree; whether it went without a warning."""
    if any(newer(root)):
        shutil.rmtree(root / READ, ignore_errors=True)
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        with redirect_stdout(Plain(sys.stdout)), redirect_stderr(Plain(sys.stderr)):
            code = jupyter_book(root, *options)
    else:
        code = jupyter_book(root, *options)
    if code or not (root / "_build" / makes).exists():
        shutil.rmtree(root / READ, ignore_errors=True)
        return False
    (root / BUILT).touch()
    return True


def quietly(root: Path, *options: str, **made: str) -> bool:
    """Build the book and show how far it has come; what Sphinx says only where that failed."""
    print("building the book; the first time that takes a minute or two", flush=True)
    with working("building the book") as progress:
        steps = Steps(progress)
        with redirect_stdout(steps), redirect_stderr(steps):
            good = build(root, *options, **made)
    if not good:
        print(steps.getvalue(), file=sys.stderr)
    return good


def jupyter_book(root: Path, *options: str) -> int | str | None:
    """Run Jupyter Book; its exit code, 0 or None where there was no warning."""
    from click.exceptions import ClickException
    from jupyter_book.cli.main import main

    arguments = ["build", "-W", "-n", "--keep-going", *options, str(root)]
    try:
        return main.main(arguments, standalone_mode=False)
    except SystemExit as exit:
        return exit.code
    except (RuntimeError, ClickException) as error:
        print(error, file=sys.stderr)
        return 1


class Steps(io.StringIO):
    """Keeps what Sphinx says, and tells of each page that it reads or writes."""

    PAGE = re.compile(r"(reading sources|writing output)\.\.\. \[ *(\d+)%\] (\S*)")

    def __init__(self, progress: Callable[[float, float, str], None]):
        super().__init__()
        self.progress = progress

    def write(self, text: str) -> int:
        """Keep a text."""
        page = self.PAGE.search(COLOR.sub("", text))
        if page:
            does = {"reading sources": "reading", "writing output": "writing"}[page[1]]
            self.progress(int(page[2]), 100, f"{does} {page[3]}")
        return super().write(text)


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
    good = quietly(ROOT) if sys.argv[1:] == ["--quiet"] else build(ROOT)
    if not good:
        print("the book does not build: the warnings above are errors", file=sys.stderr)
        sys.exit(1)
