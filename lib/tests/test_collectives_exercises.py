"""The collectives exercises both ways: solutions get everything, stubs nothing, and each wrong
answer of the zoo loses exactly what it must."""

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from weft.grade import check
from weft.grade.worker import load
from weft.grade.zoo import rounds, write_answers, zoo
from weft.plan.collectives import hierarchical_all_reduce, ring_all_reduce, ring_reduce_scatter
from weft.plan.collectives_price import crossover, sent
from weft.plan.hardware import Link

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions/collectives"
ZOO = zoo(SOLUTIONS)
TORCH = find_spec("torch") is not None
NO_RANKS = "not written yet" if TORCH else "not run: needs torch"
FUNCTIONS = (
    "reduce_scatter", "all_reduce", "broadcast", "hierarchical", "crossover", "run_ring",
)  # fmt: skip


@pytest.fixture(scope="module")
def solved():
    """What the solutions get."""
    return check("collectives", SOLUTIONS, hidden=True, seed=0)


def test_solutions_get_all_twenty_points(solved):
    assert solved.max == 20
    assert all(row.passed for row in solved.tests if TORCH or row.tier == "page"), str(solved)
    assert sum(not row.hidden for row in solved.tests) >= 10
    assert sum(row.hidden for row in solved.tests) >= 4
    assert {row.tier for row in solved.tests} == {"page", "processes"}


def test_stubs_get_nothing_and_say_so():
    result = check("collectives", ROOT / "exercises/collectives", hidden=True, seed=0)
    assert (result.score, result.max) == (0, 20)
    for row in result.tests:
        assert row.why.startswith(("not written yet", "counts once", NO_RANKS)), row


@pytest.mark.parametrize("wrong", rounds(ZOO), ids=lambda wrong: " ".join(w.name for w in wrong))
def test_wrong_answers_lose_exactly_what_they_must(wrong, solved, tmp_path):
    write_answers(tmp_path, SOLUTIONS / "answers.py", wrong)
    asked = ",".join(one.function for one in wrong)  # the others' points another test counts
    result = check("collectives", tmp_path, hidden=True, only=asked, seed=0)
    runs = {row.name for row in solved.tests if row.passed}  # all, but where torch is not there
    lost = {row.name: row for row in result.tests if not row.passed and row.name in runs}
    assert lost.keys() == runs & set().union(*(one.fails for one in wrong)), str(result)
    for row in lost.values():
        assert not row.why.startswith(("not ", "ValueError", "KeyError")), row.why


def test_every_function_has_four_wrong_answers_and_every_test_something_to_find(solved):
    counted = Counter(name for wrong in ZOO for name in wrong.replaces)
    assert all(counted[name] >= 4 for name in FUNCTIONS)
    first_to_fail = {
        min(wrong.fails, key=[row.name for row in solved.tests].index) for wrong in ZOO
    }
    found = {name for wrong in ZOO for name in wrong.fails}
    assert found == {row.name for row in solved.tests}
    # A test that only ever fails because an earlier one did would test nothing.
    assert first_to_fail == {row.name for row in solved.tests if not row.hidden}


def test_the_targets_in_the_docstrings_are_computed_ones():
    answers = load(SOLUTIONS / "answers.py", "answers", known=False)

    def told(name):
        return " ".join(getattr(answers, name).__doc__.split())

    scatter, reduce = ring_reduce_scatter(5), ring_all_reduce(5)
    count = sent(scatter, [1] * 5)[0]
    assert f"sends {count} of 5 pieces, in {len(scatter)} steps" in told("reduce_scatter")
    count = sent(reduce, [1] * 5)[0]
    assert f"sends {count} pieces, each a fifth of the data, in {len(reduce)}" in told("all_reduce")
    assert f"at n = 6 that is {len(answers.broadcast(6, 2))}" in told("broadcast")
    steps = hierarchical_all_reduce(2, 3)
    out = sum(s.source == 0 and s.target >= 3 for step in steps for s in step)
    assert f"2 nodes of 3 ranks: {out} of 6 pieces, and {len(steps)}" in told("hierarchical")
    at = crossover(8, Link("ib", 50e9, 14e-6))
    assert f"about {at / 1e6:.2f} MB" in told("crossover")


def test_the_solutions_equal_the_librarys_plans():
    answers = load(SOLUTIONS / "answers.py", "answers", known=False)
    for n in range(1, 7):
        assert answers.reduce_scatter(n) == ring_reduce_scatter(n)
        assert answers.all_reduce(n) == ring_all_reduce(n)
    link = Link("any", 3.0, 0.7)
    for n in (1, 4, 9, 100):
        assert answers.crossover(n, link.latency, link.bandwidth) == pytest.approx(
            crossover(n, link)
        )


def test_what_is_given_to_students_does_not_give_the_answers_away():
    given = "".join(path.read_text() for path in (ROOT / "exercises/collectives").rglob("*.py"))
    assert "_ring(n" not in given and "hypothesis" not in given
    answers = (ROOT / "exercises/collectives/answers.py").read_text()
    assert answers.count("raise NotImplementedError") == len(FUNCTIONS)


def test_feedback_points_at_sections_that_the_chapter_has(solved):
    chapter = (ROOT / "book/collectives.md").read_text()
    headings = set(re.findall(r"^#+ (.+)$", chapter, re.MULTILINE))
    assert {row.read for row in solved.tests} <= headings
    assert all(row.hint for row in solved.tests)
