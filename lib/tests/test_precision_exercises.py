"""The precision exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from weft.grade import check
from weft.grade.worker import load
from weft.grade.zoo import rounds, write_answers, zoo
from weft.plan.precision import FORMATS
from weft.plan.precision_scale import Scale
from weft.plan.precision_state import Recipe

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions/precision"
ZOO = zoo(SOLUTIONS)
FUNCTIONS = ("encode", "walk", "nudge", "adam")
READY = {"page": True, "chip": bool(find_spec("torch") and find_spec("triton"))}


@pytest.fixture(scope="module")
def solved():
    """What the solutions get."""
    return check("precision", SOLUTIONS, hidden=True, seed=0)


def test_solutions_get_all_twenty_points(solved):
    assert solved.max == 20
    assert all(row.passed for row in solved.tests if READY[row.tier]), str(solved)
    assert sum(not row.hidden for row in solved.tests) >= 10
    assert sum(row.max for row in solved.tests if row.hidden) == 4
    assert {row.tier for row in solved.tests} == {"page", "chip"}


def test_stubs_get_nothing_and_say_so():
    result = check("precision", ROOT / "exercises/precision", hidden=True, seed=0)
    assert (result.score, result.max) == (0, 20)
    for row in result.tests:
        assert row.why.startswith(("not written yet", "counts once", "not run: needs")), row


@pytest.mark.parametrize("wrong", rounds(ZOO), ids=lambda wrong: " ".join(w.name for w in wrong))
def test_wrong_answers_lose_exactly_what_they_must(wrong, solved, tmp_path):
    write_answers(tmp_path, SOLUTIONS / "answers.py", wrong)
    result = check("precision", tmp_path, hidden=True, seed=0)
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


def test_the_numbers_in_the_docstrings_are_computed_ones():
    answers = load(SOLUTIONS / "answers.py", "answers", known=False)

    def told(name):
        return " ".join(getattr(answers, name).__doc__.split())

    half = FORMATS["fp16"]
    one, two = f"0x{half.encode(1.0):X}", f"0x{half.encode(-2.0):X}"
    assert f"encode(1.0, 5, 10) is {one}, and encode(-2.0, 5, 10) is {two}" in told("encode")
    assert repr(FORMATS["fp32"].max).replace("+", "") in told("walk")
    walked = [(s.value, s.clean) for s in Scale(8.0, 0, 2.0, 0.5, 2).walk([True, False, False])]
    assert f"walk([True, False, False], 8.0, 2.0, 0.5, 2) is {walked}" in told("walk")
    recipe = Recipe("bf16", "fp16", "fp32", "fp32")
    read = recipe.moved - recipe.state - 2  # all but the state and the weight, which are written
    assert f"{read} bytes for each weight" in told("adam")


def test_every_number_of_the_small_formats_is_encoded_as_the_table_promises():
    answers = load(SOLUTIONS / "answers.py", "answers", known=False)
    for format in (FORMATS["fp16"], FORMATS["bf16"]):
        for bits in range(2**format.bits):
            x = format.decode(bits)
            got = answers.encode(x, format.exponent, format.fraction)
            assert got == bits or (x != x and format.decode(got) != format.decode(got))


def test_what_is_given_to_students_does_not_give_the_answers_away():
    given = "".join(path.read_text() for path in (ROOT / "exercises/precision").rglob("*.py"))
    assert "-65536" not in given and "hypothesis" not in given and "infinite - 1" not in given
    answers = (ROOT / "exercises/precision/answers.py").read_text()
    assert answers.count("raise NotImplementedError") == len(FUNCTIONS)


def test_the_librarys_own_are_closed(tmp_path):
    cheat = (
        "def encode(x, exponent, fraction):\n"
        "    from weft.plan.precision import Format\n"
        "    return Format('mine', exponent, fraction).encode(x)\n\n\n"
        "def walk(overflows, scale, growth, backoff, interval):\n"
        "    from weft.plan.precision_scale import Scale\n\n\n"
        "def nudge(*arguments):\n"
        "    from weft.ref.precision_rounding import stochastic\n\n\n"
        "def adam(*arguments):\n"
        "    from weft.kernels.precision import _single\n"
    )
    (tmp_path / "answers.py").write_text(cheat)
    result = check("precision", tmp_path, seed=0)
    assert result.score == 0
    why = {row.name: row.why for row in result.tests}
    for name in ("test_encode", "test_walk_backs_off"):
        assert "closed while you are graded" in why[name]


def test_feedback_points_at_sections_that_the_chapter_has(solved):
    chapter = (ROOT / "book/precision.md").read_text()
    headings = set(re.findall(r"^#+ (.+)$", chapter, re.MULTILINE))
    assert {row.read for row in solved.tests} <= headings
    assert all(row.hint for row in solved.tests)
