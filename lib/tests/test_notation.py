"""The letters of the chapters' formulas: book/notation.md lists each of them, and none in vain."""

import re
from collections import Counter
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[2] / "book"
PAGES = sorted(page.stem for page in BOOK.glob("*.md") if page.stem != "notation")
GREEK = "alpha beta gamma delta epsilon eta theta lambda mu nu pi rho sigma tau phi chi psi omega"
GREEK = {rf"\{name}" for name in [*GREEK.split(), *GREEK.title().split()]} | {r"\ell"}
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\$)([^$\n]+?)\$(?!\$)", re.S)
NAMES = re.compile(r"\\(?:text|mathrm|operatorname|begin|end)\s*(?:\{[^}]*\}|[a-zA-Z])|\[\d*ex\]")
INDEX = re.compile(r"_(?:\{[^}]*\}|\\?[A-Za-z]+|\d)")


def formulas(text: str) -> list[str]:
    """What stands between dollars, outside of code and of what directives are given."""
    text = re.sub(r"^(`{3,})(?!\{math\}).*?^\1$", "", text, flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    return [both or one for both, one in FORMULA.findall(text)]


def letters(formula: str) -> set[str]:
    """Its letters, without words, names of functions, the d of a gradient, and indices.

    >>> sorted(letters(r"t_\\text{ring} = \\log_2 n \\cdot \\alpha + \\mathrm dQ_i"))
    ['Q', '\\\\alpha', 'n', 't']
    """
    bare = INDEX.sub(" ", NAMES.sub(" ", formula))
    commands = set(re.findall(r"\\[A-Za-z]+", bare)) & GREEK
    return commands | set(re.findall(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", " ", bare)))


def used(page: str) -> set[str]:
    found = formulas((BOOK / f"{page}.md").read_text(encoding="utf-8"))
    return set().union(*map(letters, found))


def rows(columns: int) -> list[list[str]]:
    """The rows of the tables of letters that have so many columns."""
    section = (BOOK / "notation.md").read_text(encoding="utf-8").split("## Letters")[1]
    section = section.split("\n## ")[0]
    found = re.findall(r"^\|(.+)\|$", section, re.M)
    cells = [[cell.strip() for cell in row.split("|")] for row in found]
    return [row for row in cells if len(row) == columns and "$" in row[0]]


def named(cell: str) -> list[str]:
    return [letter for formula in formulas(cell) for letter in letters(formula)]


def listed() -> tuple[Counter, Counter]:
    """How often each letter has a line for the whole book, and for one chapter."""
    whole = Counter(letter for cell, _ in rows(2) for letter in named(cell))
    chapter = Counter(
        (letter, page.strip())
        for cell, pages, _ in rows(3)
        for page in pages.split(",")
        for letter in named(cell)
    )
    return whole, chapter


@pytest.mark.parametrize("page", PAGES)
def test_every_letter_of_a_formula_is_listed(page):
    whole, chapter = listed()
    missing = {x for x in used(page) if x not in whole and (x, page) not in chapter}
    assert not missing, f"book/notation.md does not say what {sorted(missing)} are in {page}.md"


def test_no_letter_is_listed_twice_or_in_vain():
    whole, chapter = listed()
    assert max(whole.values()) == max(chapter.values()) == 1
    letters_of = {page: used(page) for page in PAGES}
    stale = [(x, page) for x, page in chapter if x not in letters_of.get(page, ())]
    assert not stale, f"no formula of that page has the letter: {stale}"


def test_a_letter_that_nobody_listed_is_found():
    assert letters(r"\frac{2\,(n-1)}{n}\, M + t_\text{tree} e^{\ell_1} \max_j x_j") == {
        "n", "M", "t", "e", r"\ell", "x",
    }  # fmt: skip
    assert letters(r"\mathrm dS^\top \operatorname{softmax}(q)_{ij}") == {"S", "q"}
    assert formulas("`$a$` costs $b$\n```{calc}\n$c$\n```\n$$ d $$") == ["b", " d "]


def test_torchs_gather_and_scatter_send_nothing():
    torch = pytest.importorskip("torch", reason="its gather and scatter")
    x, places = torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 0], [0, 0]])
    assert not torch.distributed.is_initialized()
    assert torch.gather(x, 1, places).tolist() == [[2, 1], [3, 3]]
    assert torch.zeros_like(x).scatter(1, places[:, :1], x).tolist() == [[0, 1], [3, 0]]
