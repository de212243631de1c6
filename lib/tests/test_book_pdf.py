"""The book as one PDF: what is folded stands open, links lead within it, pictures are vectors."""

import os
import re
import sys

import browser
import pytest
from book_site import small_book

TEXTS = {
    "index": "# First\n\nSee [the second](second.md) and $x^2$.\n",
    "second": "# Second\n\n```{picture} pipeline.svg(simulate(gpipe(2, 3)))\n:name: fig-grid\n"
    ":caption: Two ranks.\n:alt: A grid of two rows.\n```\n\n[Back](index.md)\n",
}


@pytest.fixture(scope="module")
def pdf(root):
    sys.path.insert(0, str(root / "book"))
    import pdf

    yield pdf
    sys.path.remove(str(root / "book"))


def test_pages_are_one_file_with_an_outline_and_links(pdf, tmp_path):
    if browser.find() is None:
        if os.environ.get("CI"):
            pytest.fail(browser.missing())
        pytest.skip(browser.missing())
    built = small_book(tmp_path, TEXTS, builder="singlehtml", scripts=True)
    assert not built.failed, built.said
    pdf.printed(built.folder / "index.html", tmp_path / "book.pdf")
    printed = (tmp_path / "book.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert b"/Outlines" in printed and b"(Second)" in printed
    assert re.search(rb"/Subtype\s*/Link", printed) and b"document-second" in printed
    assert not re.search(rb"/Subtype\s*/Image", printed)
