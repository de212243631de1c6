"""The attention exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from weft.grade import check
from weft.grade.worker import load
from weft.grade.zoo import rounds, write_answers, zoo
from weft.plan.attention import footprint, traffic

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions/attention"
ZOO = zoo(SOLUTIONS)
FUNCTIONS = ("merge", "moved", "forward", "dkdv", "attend")
READY = {"page": True, "chip": bool(find_spec("torch") and find_spec("triton"))}


@pytest.fixture(scope="module")
def solved():
    """What the solutions get."""
    return check("attention", SOLUTIONS, hidden=True, seed=0)


def test_solutions_get_all_twenty_points(solved):
    assert solved.max == 20
    assert all(row.passed for row in solved.tests if READY[row.tier]), str(solved)
    assert sum(not row.hidden for row in solved.tests) >= 10
    assert sum(row.max for row in solved.tests if row.hidden) == 4
    assert {row.tier for row in solved.tests} == {"page", "chip"}


def test_stubs_get_nothing_and_say_so():
    result = check("attention", ROOT / "exercises/attention", hidden=True, seed=0)
    assert (result.score, result.max) == (0, 20)
    for row in result.tests:
        assert row.why.startswith(("not written yet", "counts once", "not run: needs")), row


@pytest.mark.parametrize("wrong", rounds(ZOO), ids=lambda wrong: " ".join(w.name for w in wrong))
def test_wrong_answers_lose_exactly_what_they_must(wrong, solved, tmp_path):
    write_answers(tmp_path, SOLUTIONS / "answers.py", wrong)
    result = check("attention", tmp_path, hidden=True, seed=0)
    runs = {row.name for row in solved.tests if row.passed}  # all, but where torch is not there
    lost = {row.name: row for row in result.tests if not row.passed and row.name in runs}
    assert lost.keys() == runs & set().union(*(one.fails for one in wrong)), str(result)
    for row in lost.values():
        assert not row.why.startswith(("not ", "KeyError", "NameError")), row.why


def test_every_function_has_four_wrong_answers_and_every_test_something_to_find(solved):
    counted = Counter(wrong.name.partition("_")[0] for wrong in ZOO)
    assert set(counted) == set(FUNCTIONS) and min(counted.values()) >= 4
    assert all(wrong.name.partition("_")[0] in wrong.replaces for wrong in ZOO)
    order = [row.name for row in solved.tests]
    for wrong in ZOO:
        assert {name.split("_")[1] for name in wrong.fails} == {wrong.name.partition("_")[0]}
    assert {name for wrong in ZOO for name in wrong.fails} == set(order)
    # A test that only ever fails because an earlier one did would test nothing.
    first_to_fail = {min(wrong.fails, key=order.index) for wrong in ZOO}
    assert first_to_fail == {row.name for row in solved.tests if not row.hidden}


def test_the_targets_in_the_docstrings_are_computed_ones():
    answers = load(SOLUTIONS / "answers.py", "answers", known=False)
    visible = load(SOLUTIONS / "test_attention.py", "visible", known=False)

    def told(name):
        return " ".join(getattr(answers, name).__doc__.split())

    sizes = 1024, 1024, 64, 64, 2, 128, 64
    second, first = traffic(*sizes, "fa2"), traffic(*sizes, "fa1")
    assert "T = S = 1024, K = V = 64, size 2 and tiles of 128 by 64" in told("moved")
    assert f'"fa2" reads {second[0]} bytes and writes {second[1]};' in told("moved")
    assert f'"fa1" reads {first[0]} and writes {first[1]}.' in told("moved")
    assert f'With causal, "fa2" reads {traffic(*sizes, "fa2", True)[0]}.' in told("moved")
    o, lse = answers.merge([([1.0, 5.0], 0.0), ([3.0, 1.0], 0.0)])
    assert f"merge to ({o}, {int(lse * 1e4) / 1e4}…)" in told("merge")
    T, S, K, V, tile_q, tile_k = visible.GRADED
    assert f"T = {T}, S = {S}, K = V = {K} and tiles of {tile_q} by {tile_k}" in told("forward")
    assert (K, tile_q) == (V, tile_k) and "there are 16 KiB" in told("forward")
    assert "there are 20 KiB" in told("dkdv")


def test_the_room_holds_tiles_with_some_to_spare_and_no_row_of_them():
    visible = load(SOLUTIONS / "test_attention.py", "visible", known=False)
    T, S, K, V, tile_q, tile_k = visible.GRADED
    least = footprint(tile_q, tile_k, K, V, 4)
    spare = 4 * (tile_q * tile_k + tile_q * V)  # another tile of scores, and one of the output
    assert least + spare <= 16 * 1024 < least + 4 * tile_q * (S - tile_k)
    assert 4 * S * K > 16 * 1024  # nor do the keys fit
    kept = 4 * (4 * tile_k + 2 * tile_q) * K  # K, V, dK, dV; Q, dO
    assert kept + 4 * 3 * tile_q * tile_k <= 20 * 1024 < kept + 4 * tile_k * T * 2


def test_what_is_given_to_students_does_not_give_the_answers_away():
    given = "".join(path.read_text() for path in (ROOT / "exercises/attention").rglob("*.py"))
    assert "_hidden(" not in given and "hypothesis" not in given and "addmm_" not in given
    answers = (ROOT / "exercises/attention/answers.py").read_text()
    assert answers.count("raise NotImplementedError") == len(FUNCTIONS)


def test_the_librarys_own_attention_is_closed(tmp_path):
    cheat = (
        "def merge(parts):\n"
        "    from weft.ref.attention import merge\n\n\n"
        "def moved(*sizes):\n"
        "    from weft.plan.attention import traffic\n"
        "    return traffic(*sizes)\n"
    )
    (tmp_path / "answers.py").write_text(cheat)
    result = check("attention", tmp_path, only="m", seed=0)
    why = {row.name: row.why for row in result.tests}
    for name in ("test_merge", "test_moved_fa1", "test_moved_fa2"):
        assert "closed while you are graded" in why[name]


def test_feedback_points_at_sections_that_the_chapter_has(solved):
    chapter = (ROOT / "book/attention.md").read_text()
    headings = set(re.findall(r"^#+ (.+)$", chapter, re.MULTILINE))
    assert {row.read for row in solved.tests} <= headings
    assert all(row.hint for row in solved.tests)
