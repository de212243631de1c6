"""The whole book as one PDF: python book/pdf.py [FILE], by default _build/warp-and-weft.pdf.

Sphinx writes all pages into one, Chromium typesets its formulas and prints it. Pictures stay
vectors, sliders show their first state, folded answers are open, and links lead within the file.
"""

import sys
from pathlib import Path

from build import ROOT, quietly

sys.path.append(str(ROOT / "lib/tests/support"))
import browser

WRITTEN = "singlehtml/book/intro.html"
PRINTED = ROOT / "_build/warp-and-weft.pdf"
MINUTES = 10
FOOT = """<div style="font: 8px serif; width: 100%; text-align: center">
<span class="pageNumber"></span></div>"""
TYPESET = "async () => { await MathJax.startup.promise; await document.fonts.ready; }"
OPENED = """() => {
  document.querySelectorAll("details").forEach((one) => (one.open = true));
  document.documentElement.classList.add("weft-one-page");
}"""


def one_page(root: Path) -> Path | None:
    """Write the book as one HTML page and return it, or None where Sphinx warned.

    Sphinx puts that page where the book's first one is, with addresses for the folder above.
    """
    if not quietly(root, "--builder", "custom", "--custom-builder", "singlehtml", makes=WRITTEN):
        return None
    written = root / "_build" / WRITTEN
    page = written.parents[1] / "book.html"
    text = written.read_text(encoding="utf-8").replace('"book/intro.html#', '"#')
    page.write_text(text, encoding="utf-8")
    return page


def printed(page: Path, target: Path) -> None:
    """Print a page to a PDF with an outline, once its formulas stand."""
    with browser.launched() as running:
        sheet = running.new_page()
        sheet.set_default_timeout(MINUTES * 60_000)
        sheet.goto(page.as_uri())
        sheet.evaluate(OPENED)
        sheet.evaluate(TYPESET)
        sheet.pdf(
            path=target,
            format="A4",
            margin={"top": "18mm", "bottom": "18mm", "left": "18mm", "right": "18mm"},
            outline=True,
            tagged=True,
            print_background=True,
            display_header_footer=True,
            header_template="<span></span>",
            footer_template=FOOT,
        )
        sheet.close()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if sys.argv[1:] else PRINTED
    if browser.find() is None:
        sys.exit(browser.missing())
    page = one_page(ROOT)
    if page is None:
        sys.exit("the book does not build: the warnings above are errors")
    print("printing it, which takes a minute", flush=True)
    printed(page, target)
    print(f"{target}: {target.stat().st_size / 1e6:.0f} MB")
