"""Read a page again when what it computed from has changed, not only when its text has.

A page with a number of the library in it is as old as the library. Sphinx knows the page's own
file; this keeps, for each page that uses the extension, a fingerprint of lib/weft, of the
records and of the extension, and has the page read again when it differs. When a style or a script
has changed, all pages are written again, since Sphinx copies those only along with a page.
"""

import hashlib
from functools import cache
from pathlib import Path

import weft


@cache
def fingerprint(source: Path) -> str:
    """A hash over the text of everything that a computed page depends on."""
    found = hashlib.sha256()
    library = Path(weft.__file__).parent
    layers = ("plan", "draw", "explore", "bench")
    files = [*library.glob("*.py"), *(p for at in layers for p in library.glob(f"{at}/**/*.py"))]
    files += [*Path(__file__).parent.glob("*.py"), *source.glob("book/measured/*.json")]
    for path in sorted(files):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


@cache
def looks(source: Path) -> str:
    """A hash over the book's own styles, scripts and drawings."""
    found = hashlib.sha256()
    for path in sorted(source.glob("book/_static/*.*")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def note_use(env) -> None:
    """Say that the page being read computes something."""
    if not hasattr(env, "weft_fingerprints"):
        env.weft_fingerprints = {}
    env.weft_fingerprints[env.docname] = fingerprint(Path(env.srcdir))


def outdated(app, env, added, changed, removed) -> list[str]:
    now, looks_now = fingerprint(Path(env.srcdir)), looks(Path(env.srcdir))
    looked, env.weft_looks = getattr(env, "weft_looks", looks_now), looks_now
    if looked != looks_now:
        return list(env.all_docs)
    return [page for page, then in getattr(env, "weft_fingerprints", {}).items() if then != now]


def purge(app, env, docname) -> None:
    getattr(env, "weft_fingerprints", {}).pop(docname, None)


def merge(app, env, docnames, other) -> None:
    for docname in docnames:
        if docname in getattr(other, "weft_fingerprints", {}):
            if not hasattr(env, "weft_fingerprints"):
                env.weft_fingerprints = {}
            env.weft_fingerprints[docname] = other.weft_fingerprints[docname]


def setup(app):
    app.connect("env-get-outdated", outdated)
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
