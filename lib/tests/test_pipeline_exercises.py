"""The pipeline exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from weft.grade import check
from weft.grade.worker import load
from weft.grade.zoo import rounds, write_answers, zoo
from weft.plan.pipeline import interleaved, one_f_one_b, zb_h1
from weft.plan.simulate import simulate

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions/pipeline"
ZOO = zoo(SOLUTIONS)
TORCH = find_spec("torch") is not None
NO_RANKS = "not written yet" if TORCH else "not run: needs torch"
FUNCTIONS = ("one_f_one_b", "interleaved", "microbatches", "zb_h1", "unequal", "run_row")


@pytest.fixture(scope="module")
def solved():
    """What the solutions get."""
    return check("pipeline", SOLUTIONS, hidden=True, seed=0)


def test_solutions_get_all_twenty_points(solved):
    assert solved.max == 20
    assert all(row.passed for row in solved.tests if TORCH or row.tier == "page"), str(solved)
    assert sum(not row.hidden for row in solved.tests) >= 10
    assert sum(row.hidden for row in solved.tests) >= 4
    assert {row.tier for row in solved.tests} == {"page", "processes"}


def test_stubs_get_nothing_and_say_so():
    result = check("pipeline", ROOT / "exercises/pipeline", hidden=True, seed=0)
    assert (result.score, result.max) == (0, 20)
    for row in result.tests:
        assert row.why.startswith(("not written yet", "counts once", NO_RANKS)), row


@pytest.mark.parametrize("wrong", rounds(ZOO), ids=lambda wrong: " ".join(w.name for w in wrong))
def test_wrong_answers_lose_exactly_what_they_must(wrong, solved, tmp_path):
    write_answers(tmp_path, SOLUTIONS / "answers.py", wrong)
    asked = ",".join(one.function for one in wrong)  # the others' points another test counts
    result = check("pipeline", tmp_path, hidden=True, only=asked, seed=0)
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

    plain = simulate(one_f_one_b(4, 8))
    live = ", ".join(map(str, plain.peak_live))
    assert f"makespan {plain.makespan:g}, live microbatches {live}" in told("one_f_one_b")
    thin, late = simulate(interleaved(2, 4, 2)), simulate(interleaved(2, 4, 2), c=0.25)
    assert f"a makespan of {thin.makespan:g}, and of no more than {late.makespan:g}" in told(
        "interleaved"
    )
    assert f"rank 0 then holds at most {thin.peak_live[0]} activations" in told("interleaved")
    assert f"rank 1 at most {thin.peak_live[1]}." in told("interleaved")
    split = simulate(zb_h1(4, 8))
    assert f"makespan must come down to {split.makespan:g}" in told("zb_h1")
    assert max(split.peak_live) == 4
    for p, below, v, where in ((8, 0.1, 1, "{} microbatches"), (8, 0.1, 4, "v = 4 it takes {}")):
        assert where.format(answers.microbatches(p, below, v)) in told("microbatches")
    hidden = load(SOLUTIONS / "test_pipeline_hidden.py", "hidden", known=False)
    best = hidden.best([1, 1, 3], [3, 6, 2], 4, [4, 3, 2])
    assert f"limit 4, 3, 2 that is {best:g}" in told("unequal")


def test_the_targets_in_the_visible_tests_are_the_best_there_are():
    visible = load(SOLUTIONS / "test_pipeline.py", "visible", known=False)
    hidden = load(SOLUTIONS / "test_pipeline_hidden.py", "hidden", known=False)
    for f, bw, m, limit, makespan in visible.STAGES:
        assert hidden.best(f, bw, m, limit) == makespan


def test_what_is_given_to_students_does_not_give_the_answers_away():
    given = "".join(path.read_text() for path in (ROOT / "exercises/pipeline").rglob("*.py"))
    assert "_keep" not in given and "hypothesis" not in given
    answers = (ROOT / "exercises/pipeline/answers.py").read_text()
    assert answers.count("raise NotImplementedError") == len(FUNCTIONS)


def test_feedback_points_at_sections_that_the_chapter_has(solved):
    chapter = (ROOT / "book/pipeline.md").read_text()
    headings = set(re.findall(r"^#+ (.+)$", chapter, re.MULTILINE))
    assert {row.read for row in solved.tests} <= headings
    assert all(row.hint for row in solved.tests)
