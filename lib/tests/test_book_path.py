"""The way through the chapters, and their words, as the boxes "Before you start" have them."""

import re
import sys

import pytest

BOX = """\
# Rings

:::{admonition} Before you start
**Needs:** [processes](processes.md), {ref}`its words <gpu-words>` and [that](#here). **Takes:** \
about an hour, the [lab](../notebooks/10.ipynb) half of one more. **New words:** *ring*, *1F1B*; \
**bold**, *a `b`*.
:::
"""
# Composing has parts on parallelism whose own chapters come later.
LATER = {("composing", "ring"), ("composing", "experts")}


@pytest.fixture(scope="module")
def path(root):
    sys.path.insert(0, str(root / "book" / "_ext"))
    from weft_book import path

    yield path
    sys.path.remove(str(root / "book" / "_ext"))


def test_a_box_is_read(path):
    one = path.chapter("ring", "Rings and more", BOX)
    assert one.needs == ("processes", "gpu") and (one.reading, one.lab) == (60, 30)
    assert one.words == ("ring", "1F1B", "a `b`") and one.title == "Rings"
    assert path.chapter("ring", "", "# Rings\n\nNo box.\n") is None
    with pytest.raises(ValueError, match="no time"):
        path.minutes("long, as for FlashAttention-3")


def test_every_chapter_has_a_box_and_needs_what_came_before(path, root):
    book = path.chapters(root)
    stems = [one.stem for one in book]
    programs = {file.stem for file in (root / "book/programs").glob("*.py")}
    assert programs <= set(stems)
    later = {(a.stem, b) for i, a in enumerate(book) for b in a.needs if b not in stems[:i]}
    assert later == LATER
    assert all(one.words and 20 <= one.reading <= 120 for one in book)
    # backward shares the lab of hopper; the appendix asks the calculators of all the others.
    assert {one.stem for one in book if one.lab == 0} == {"backward", "case"}


def test_the_table_and_the_index_are_written_from_the_boxes(path, tmp_path):
    source = tmp_path / "source"
    (source / "book").mkdir(parents=True)
    (source / "_toc.yml").write_text(
        "root: index\nparts:\n- caption: First\n  chapters:\n  - file: book/ring\n"
        "  - file: notes/x\n"
    )
    (source / "book/ring.md").write_text(BOX.replace("[that](#here)", "that"))
    book = path.chapters(source)
    table, words = "\n".join(path.path(book)), "\n".join(path.words(book))
    assert "| First | [Rings](ring.md) | – | 60 min | 30 min |" in table
    assert "1 hour of reading and ½ hour of labs" in table
    assert re.search(r"\*\*0–9\*\*\s+- \*1F1B\*: \[ring\]\(ring.md\)", words)
    assert words.index("*1F1B*") < words.index("*a `b`*") < words.index("*ring*")
