"""The built book for the tests that look at it, and small books that a test builds for itself.

`site` is `_build/html`; it is built first where it is missing or older than what it is made of.
`small_book` builds a few pages with the book's extension and returns what the build said.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILT = ROOT / "_build" / "html"
STAMP = BUILT / "_static" / "pylib" / "files.json"  # written by every build
MADE_OF = ("_config.yml", "_toc.yml", "book/**/*", "notebooks/*.ipynb")
MADE_OF += tuple(f"lib/weft/{layer}/**/*.py" for layer in ("plan", "draw", "explore"))

CONF = """\
import sys
sys.path.insert(0, {extension!r})
extensions = ["myst_parser", "weft_book"]
html_static_path = {static!r}
myst_enable_extensions = ["colon_fence", "dollarmath"]
numfig = True
html_theme = "basic"
mathjax_path = "mathjax/tex-mml-chtml.js"
html_favicon = {favicon!r}
"""


def outdated() -> bool:
    """Whether a source of the book is younger than the built book."""
    if not STAMP.exists():
        return True
    built = STAMP.stat().st_mtime
    sources = (path for pattern in MADE_OF for path in ROOT.glob(pattern))
    return any(
        path.stat().st_mtime > built
        for path in sources
        if path.is_file() and "__pycache__" not in path.parts
    )


@contextmanager
def only_one_builds() -> Iterator[None]:
    """Let the test processes of one run take turns; a lock that outlived its maker is broken."""
    lock = ROOT / "_build" / ".building"
    lock.parent.mkdir(exist_ok=True)
    while True:
        try:
            lock.mkdir()
            break
        except FileExistsError:
            if time.time() - lock.stat().st_mtime > 300:
                lock.rmdir()
            time.sleep(0.2)
    try:
        yield
    finally:
        lock.rmdir()


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built book, built now if it has to be."""
    with only_one_builds():
        if outdated():
            command = [sys.executable, "book/build.py"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                STAMP.unlink(missing_ok=True)
                pytest.fail(f"the book does not build:\n{(done.stdout + done.stderr)[-4000:]}")
    return BUILT


def pages(site: Path) -> list[str]:
    """The book's own pages, by path below the site's root."""
    found = [*site.glob("book/*.html"), *site.glob("notebooks/*.html")]
    return sorted(path.relative_to(site).as_posix() for path in found)


@dataclass(frozen=True)
class Build:
    """A finished build: where its pages are, whether it failed, and what it said."""

    folder: Path
    failed: bool
    said: str

    def read(self, page: str) -> str:
        return (self.folder / page).read_text(encoding="utf-8")


def small_book(
    folder: Path, texts: dict[str, str], builder: str = "html", scripts: bool = False
) -> Build:
    """Build pages with nothing but the book's extension; `texts` are their Markdown by name.

    With `scripts` the pages have the book's scripts and styles, and work in a browser.
    """
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    static = [str(ROOT / "book" / "_static")] if scripts else []
    favicon = f"{static[0]}/favicon.svg" if scripts else None
    conf = CONF.format(extension=str(ROOT / "book" / "_ext"), static=static, favicon=favicon)
    (source / "conf.py").write_text(conf, encoding="utf-8")
    listed = "\n".join(name for name in texts if name != "index")
    index = texts.get("index", "# Index\n") + f"\n```{{toctree}}\n{listed}\n```\n"
    for name, text in (texts | {"index": index}).items():
        page = source / f"{name}.md"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
    out = folder / builder
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-b", builder]
    done = subprocess.run(
        [*command, "-d", str(folder / "doctrees" / builder), str(source), str(out)],
        capture_output=True,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )
    return Build(out, done.returncode != 0, done.stdout + done.stderr)
