"""The hopper exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

import re
from collections import Counter
from importlib.util import find_spec
from math import ceil
from pathlib import Path

import pytest

from weft.grade import check
from weft.grade.worker import load
from weft.grade.zoo import rounds, write_answers, zoo
from weft.plan.hopper import SM, TILES, kernel
from weft.plan.sm import play

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions/hopper"
ZOO = zoo(SOLUTIONS)
TORCH = find_spec("torch") is not None
FUNCTIONS = ("narrowest", "most_keys", "ring", "rows", "hadamard", "fp8_scores")


@pytest.fixture(scope="module")
def solved():
    """What the solutions get."""
    return check("hopper", SOLUTIONS, hidden=True, seed=0)


def test_solutions_get_all_twenty_points(solved):
    assert solved.max == 20
    assert all(row.passed for row in solved.tests if TORCH or row.tier == "page"), str(solved)
    assert sum(not row.hidden for row in solved.tests) >= 10
    assert sum(row.hidden for row in solved.tests) == 4
    assert {row.tier for row in solved.tests} == {"page", "processes"}


def test_stubs_get_nothing_and_say_so():
    result = check("hopper", ROOT / "exercises/hopper", hidden=True, seed=0)
    assert (result.score, result.max) == (0, 20)
    for row in result.tests:
        assert row.why.startswith(("not written yet", "counts once", "not run: needs torch")), row


@pytest.mark.parametrize("wrong", rounds(ZOO), ids=lambda wrong: " ".join(w.name for w in wrong))
def test_wrong_answers_lose_exactly_what_they_must(wrong, solved, tmp_path):
    write_answers(tmp_path, SOLUTIONS / "answers.py", wrong)
    asked = ",".join(one.function for one in wrong)  # the others' points another test counts
    result = check("hopper", tmp_path, hidden=True, only=asked, seed=0)
    runs = {row.name for row in solved.tests if row.passed}  # all, but where torch is not there
    lost = {row.name: row for row in result.tests if not row.passed and row.name in runs}
    assert lost.keys() == runs & set().union(*(one.fails for one in wrong)), str(result)
    for row in lost.values():
        assert not row.why.startswith(("not ", "ValueError", "KeyError")), row.why


def test_every_function_has_four_wrong_answers_and_every_test_something_to_find(solved):
    counted = Counter(name for wrong in ZOO for name in wrong.replaces)
    assert all(counted[name] >= 4 for name in FUNCTIONS)
    order = [row.name for row in solved.tests]
    assert {name for wrong in ZOO for name in wrong.fails} == set(order)
    # A test that only ever fails because an earlier one did would test nothing.
    first_to_fail = {min(wrong.fails, key=order.index) for wrong in ZOO}
    assert first_to_fail == {row.name for row in solved.tests if not row.hidden}


def test_the_targets_in_the_docstrings_are_computed_ones():
    answers = load(SOLUTIONS / "answers.py", "answers", known=False)

    def told(name):
        return " ".join(getattr(answers, name).__doc__.split())

    halves = answers.narrowest(0.5), answers.narrowest(0.5, 1)
    assert "With the defaults: {} for a half; {} for a half at size 1.".format(*halves) in told(
        "narrowest"
    )
    keys = answers.most_keys(128, 2, 2), answers.most_keys(256, 2, 2)
    assert "2 warpgroups and 2 stages: {}. K = 256: {}.".format(*keys) in told("most_keys")
    assert f"{SM.shared // 1024} KiB" in told("most_keys")
    assert f"The {SM.registers} of the multiprocessor" in told("most_keys")
    wide = TILES["bf16", 128, False]
    clocks = [ceil(play(kernel(p, wide, [8])).makespan) for p in ("pingpong", "overlapped")]
    assert "{} clocks with `ahead` 0, and in {} with 1.".format(*clocks) in told("rows")
    assert f"tiles of {wide.keys} keys, K = {wide.K} and 8 tiles" in told("rows")


def test_a_row_counts_its_operations_and_a_ring_sees_what_is_lost():
    """The probe itself: numbers that count, and errors that the zoo does not make."""
    probe = load(SOLUTIONS / "probe.py", "probe", known=False)
    probe.Number.done = 0
    x, y = probe.Number(3.0), probe.Number(4.0)
    assert [x + y, 1 + x, x - y, 1 - x, x * y, 2 * x, x / y, -x, sum([x, y])] == [
        7, 4, -1, -2, 12, 6, 0.75, -3, 7,
    ]  # fmt: skip
    assert probe.Number.done == 10
    assert probe.product([1.0, 2.0, 3.0, 5.0]) == pytest.approx([5.5, -1.5, -2.5, 0.5])
    good = [[("empty", 0, 1), ("load", 0, 0)], [("full", 0, 0), ("read", 0, 0), ("free", 0, 0)]]
    probe.Ring("good", good, 1, 1, 1).run(0).finished()
    for row, says in (
        ([("read", 0, 0), ("free", 0, 0)], "reads tile 0 in slot 0, which holds"),
        ([("full", 0, 0), ("free", 0, 0), ("read", 0, 0)], "after it has freed it"),
        ([("full", 0, 0), ("free", 0, 0)], "expected consumer 1 to read tiles 0 to 0"),
        ([("full", 1, 0)], "expected a slot from 0 to 0"),
        ([("load", 0, 0)], "a kind of full, read, free"),
    ):
        with pytest.raises(AssertionError, match=says):
            probe.Ring("bad", [good[0], row], 1, 1, 1).run(0).finished()


def test_what_is_given_to_students_does_not_give_the_answers_away():
    given = "".join(path.read_text() for path in (ROOT / "exercises/hopper").rglob("*.py"))
    assert "hypothesis" not in given and "(turn + 1) % 2" not in given
    answers = (ROOT / "exercises/hopper/answers.py").read_text()
    assert answers.count("raise NotImplementedError") == len(FUNCTIONS)


def test_feedback_points_at_sections_that_the_chapter_has(solved):
    chapter = (ROOT / "book/hopper.md").read_text()
    headings = set(re.findall(r"^#+ (.+)$", chapter, re.MULTILINE))
    assert {row.read for row in solved.tests} <= headings
    assert all(row.hint for row in solved.tests)
