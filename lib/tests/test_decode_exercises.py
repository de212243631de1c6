"""The decoding exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from weft.grade import check
from weft.grade.worker import load
from weft.grade.zoo import rounds, write_answers, zoo
from weft.plan.decode import bytes_per_token
from weft.plan.shape import SHAPES

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions/decode"
ZOO = zoo(SOLUTIONS)
FUNCTIONS = ("fits", "allot", "paged", "piece", "merge")
READY = {"page": True, "chip": bool(find_spec("torch") and find_spec("triton"))}


@pytest.fixture(scope="module")
def solved():
    """What the solutions get."""
    return check("decode", SOLUTIONS, hidden=True, seed=0)


def test_solutions_get_all_twenty_points(solved):
    assert solved.max == 20
    assert all(row.passed for row in solved.tests if READY[row.tier]), str(solved)
    assert sum(not row.hidden for row in solved.tests) >= 10
    assert sum(row.max for row in solved.tests if row.hidden) == 4
    assert {row.tier for row in solved.tests} == {"page", "chip"}


def test_stubs_get_nothing_and_say_so():
    result = check("decode", ROOT / "exercises/decode", hidden=True, seed=0)
    assert (result.score, result.max) == (0, 20)
    for row in result.tests:
        assert row.why.startswith(("not written yet", "counts once", "not run: needs")), row


@pytest.mark.parametrize("wrong", rounds(ZOO), ids=lambda wrong: " ".join(w.name for w in wrong))
def test_wrong_answers_lose_exactly_what_they_must(wrong, solved, tmp_path):
    write_answers(tmp_path, SOLUTIONS / "answers.py", wrong)
    result = check("decode", tmp_path, hidden=True, seed=0)
    runs = {row.name for row in solved.tests if row.passed}  # all, but where torch is not there
    lost = {row.name: row for row in result.tests if not row.passed and row.name in runs}
    assert lost.keys() == runs & set().union(*(one.fails for one in wrong)), str(result)
    for row in lost.values():
        assert not row.why.startswith(("not ", "NameError")), row.why


def test_every_function_has_four_wrong_answers_and_every_test_something_to_find(solved):
    counted = Counter(wrong.name.partition("_")[0] for wrong in ZOO)
    assert set(counted) == set(FUNCTIONS) and min(counted.values()) >= 4
    assert all(wrong.replaces == (wrong.name.partition("_")[0],) for wrong in ZOO)
    order = [row.name for row in solved.tests]
    for wrong in ZOO:
        assert {name.split("_")[1] for name in wrong.fails} == set(wrong.replaces)
    assert {name for wrong in ZOO for name in wrong.fails} == set(order)
    # A test that only ever fails because an earlier one did would test nothing.
    first_to_fail = {min(wrong.fails, key=order.index) for wrong in ZOO}
    assert first_to_fail == {row.name for row in solved.tests if not row.hidden}


def test_the_targets_in_the_docstrings_are_computed_ones():
    answers = load(SOLUTIONS / "answers.py", "answers", known=False)
    visible = load(SOLUTIONS / "test_decode.py", "visible", known=False)

    def told(name):
        return " ".join(getattr(answers, name).__doc__.split())

    shape = SHAPES["llama2-70b"]
    sizes = shape.layers, shape.width, shape.heads, shape.groups, 2
    assert "{} layers, width {}, {} heads on {}, size {}:".format(*sizes) in told("fits")
    each, count = answers.fits(10**10, 1000, *sizes, 16)
    assert each == bytes_per_token(shape) and f": {each} bytes for each token" in told("fits")
    assert f"In 10**10 bytes there is room for {count} sequences of 1000 tokens" in told("fits")
    length, block, H, G, K, V = visible.GRADED
    graded = f"H = {H}, G = {G}, K = V = {K} and {length} tokens in blocks of {block}"
    assert K == V and f"{graded}, there are 8 KiB" in told("paged")


def test_the_room_holds_a_block_of_each_and_not_all_keys():
    visible = load(SOLUTIONS / "test_decode.py", "visible", known=False)
    length, block, H, G, K, V = visible.GRADED
    rows = H // G
    tile = 4 * (block * (K + V) + rows * (K + V) + 2 * rows * block)
    assert 1.25 * tile < 8 * 1024 < 4 * length * K


def test_what_is_given_to_students_does_not_give_the_answers_away():
    given = "".join(path.read_text() for path in (ROOT / "exercises/decode").rglob("*.py"))
    assert "fade" not in given and "hypothesis" not in given and "free.pop" not in given
    answers = (ROOT / "exercises/decode/answers.py").read_text()
    assert answers.count("raise NotImplementedError") == len(FUNCTIONS)


def test_the_librarys_own_books_and_kernels_are_closed(tmp_path):
    cheat = (
        "def fits(memory, tokens, layers, width, heads, kv_heads, size, block):\n"
        "    from weft.plan.decode import bytes_per_token\n"
        "    from weft.plan.shape import ModelShape\n"
        "    shape = ModelShape(layers, width, heads, 1, 1, kv_heads)\n"
        "    return bytes_per_token(shape, size), 0\n\n\n"
        "def allot(operations, count, block):\n"
        "    from weft.plan.decode_blocks import Blocks\n"
        "    pool = Blocks(count, block)\n\n\n"
        "def paged(q, k_cache, v_cache, table, length, o, sram):\n"
        "    from weft.ref.decode import paged_attention\n\n\n"
        "def piece(*arguments):\n"
        "    from weft.kernels.decode import _piece\n\n\n"
        "def merge(*arguments):\n"
        "    from weft.kernels.decode import _merge\n"
    )
    (tmp_path / "answers.py").write_text(cheat)
    result = check("decode", tmp_path, seed=0)
    assert result.score == 0
    why = {row.name: row.why for row in result.tests}
    for name in ("test_fits_bytes", "test_allot", *(["test_paged"] if READY["chip"] else [])):
        assert "closed while you are graded" in why[name]


def test_feedback_points_at_sections_that_the_chapter_has(solved):
    chapter = (ROOT / "book/decode.md").read_text()
    headings = set(re.findall(r"^#+ (.+)$", chapter, re.MULTILINE))
    assert {row.read for row in solved.tests} <= headings
    assert all(row.hint for row in solved.tests)
