"""Every link of the built book leads somewhere, and no page loads anything from another host."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from book_site import site  # noqa: F401

LINKED_ONLY = {"canonical", "next", "prev", "author", "search", "index", "license"}


class Page(HTMLParser):
    """What a page names: its anchors, where it leads, what it loads, and pictures without words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.wordless: list[str] = []
        self.labelled: list[str] = []
        self.in_article = False
        self.feed(text)
        self.wordless += [f"#{label}" for label in self.labelled if label not in self.anchors]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if "href" in given:
            only_linked = tag != "link" or given.get("rel") in LINKED_ONLY
            (self.leads if only_linked else self.loads).append(given["href"])
        if "src" in given:
            self.loads.append(given["src"])
        self.in_article |= tag == "article"
        self._look_for_words(tag, given)

    def _look_for_words(self, tag: str, given: dict[str, str]) -> None:
        if tag == "img" and ("alt" not in given or (self.in_article and not given["alt"].strip())):
            self.wordless.append(f"img {given.get('src', '')}")
        hidden = given.get("aria-hidden") == "true"
        labels = given.get("aria-labelledby", "").split()
        named = given.get("role") == "img" and (labels or given.get("aria-label", "").strip())
        self.labelled += labels
        if tag == "svg" and self.in_article and not hidden and not named:
            self.wordless.append(f"svg {given.get('class', '')}")

    def handle_endtag(self, tag: str) -> None:
        self.in_article &= tag != "article"


def elsewhere(address: str) -> bool:
    return urlsplit(address).scheme in ("http", "https") or address.startswith("//")


def dead_links(pages: dict[Path, Page]) -> Iterator[str]:
    """Local links and loads whose file or anchor does not exist."""
    for path, page in pages.items():
        for address in page.leads + page.loads:
            parts = urlsplit(address)
            if parts.scheme or address.startswith("//"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.name}: {address} does not exist"
            elif parts.fragment and not _anchored(pages.get(target), unquote(parts.fragment)):
                yield f"{path.name}: {address} has no such anchor"


def _anchored(page: Page | None, anchor: str) -> bool:
    return page is None or anchor in page.anchors


def foreign_loads(folder: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """What a page, or a style sheet that it may use, loads from another host."""
    for path, page in pages.items():
        yield from (f"{path.name} loads {address}" for address in page.loads if elsewhere(address))
    for path in folder.rglob("*.css"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        for address in re.findall(r"url\(\s*['\"]?([^'\")\s]+)|@import\s+['\"]([^'\"]+)", text):
            if elsewhere("".join(address)):
                yield f"{path.name} loads {''.join(address)}"


def read_pages(folder: Path) -> dict[Path, Page]:
    found = [path for path in folder.resolve().rglob("*.html") if "_static" not in path.parts]
    return {path: Page(path.read_text(encoding="utf-8")) for path in found}


@pytest.fixture(scope="module")
def built(site):  # noqa: F811
    found = read_pages(site)
    assert {"intro.html", "pipeline.html", "search.html"} <= {path.name for path in found}
    return found


def test_every_local_link_leads_somewhere(built):
    assert list(dead_links(built)) == []


def test_nothing_is_loaded_from_another_host(site, built):  # noqa: F811
    assert list(foreign_loads(site, built)) == []


def test_every_picture_has_words(built):
    assert {path.name: page.wordless for path, page in built.items() if page.wordless} == {}


def test_the_vendored_parts_carry_their_licences(site):  # noqa: F811
    for part in ("mathjax", "pyodide"):
        text = (site / "_static" / part / "LICENSE").read_text(encoding="utf-8")
        assert "License" in text
    for font in (site / "_static/fonts").glob("*.woff2"):
        licence = font.with_name(font.name.split("-latin-")[0] + "-LICENSE.txt")
        assert "SIL Open Font License" in licence.read_text(encoding="utf-8")


def test_what_is_wrong_with_a_page_is_noticed(tmp_path):
    (tmp_path / "style.css").write_text("a { background: url(https://cdn.example/a.png) }")
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"></a><a href="b.html#gone"></a><a href="gone.html"></a>'
        '<a href="https://elsewhere.example/">a link may lead out</a>'
        '<script src="//cdn.example/x.js"></script><link rel="stylesheet" href="style.css">'
        '<article><img src="b.html"><svg></svg><svg role="img" aria-label="words"></svg>'
        '<svg role="img" aria-labelledby="nobody"></svg></article>'
    )
    pages = read_pages(tmp_path)
    assert sorted(dead_links(pages)) == [
        "a.html: b.html#gone has no such anchor",
        "a.html: gone.html does not exist",
    ]
    assert sorted(foreign_loads(tmp_path, pages)) == [
        "a.html loads //cdn.example/x.js",
        "style.css loads https://cdn.example/a.png",
    ]
    assert pages[(tmp_path / "a.html").resolve()].wordless == ["img b.html", "svg ", "#nobody"]
