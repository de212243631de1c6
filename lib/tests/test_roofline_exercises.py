"""The roofline exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from weft.grade import check
from weft.grade.worker import load
from weft.grade.zoo import rounds, write_answers, zoo
from weft.plan import roofline
from weft.plan.hardware import CHIPS

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions/roofline"
ZOO = zoo(SOLUTIONS)
TORCH = find_spec("torch") is not None
CHIP = TORCH and find_spec("triton") is not None
FUNCTIONS = ("work", "smallest_batch", "chain_bytes", "mlp", "softmax", "swiglu_kernel")


def runs(row):
    """Whether what a test needs is installed here."""
    name = row.name.removeprefix("test_")
    return CHIP if name.startswith("swiglu") else TORCH or not name.startswith("softmax")


@pytest.fixture(scope="module")
def solved():
    """What the solutions get."""
    return check("roofline", SOLUTIONS, hidden=True, seed=0)


def test_solutions_get_all_twenty_points(solved):
    assert solved.max == 20
    assert all(row.passed for row in solved.tests if runs(row)), str(solved)
    assert sum(not row.hidden for row in solved.tests) >= 10
    assert sum(row.hidden for row in solved.tests) >= 4
    assert {row.tier for row in solved.tests} == {"page", "chip"}


def test_stubs_get_nothing_and_say_so():
    result = check("roofline", ROOT / "exercises/roofline", hidden=True, seed=0)
    assert (result.score, result.max) == (0, 20)
    for row in result.tests:
        bare = "not written yet" if runs(row) else "not run: needs torch"
        assert row.why.startswith((bare, "counts once")), row


@pytest.mark.parametrize("wrong", rounds(ZOO), ids=lambda wrong: " ".join(w.name for w in wrong))
def test_wrong_answers_lose_exactly_what_they_must(wrong, solved, tmp_path):
    write_answers(tmp_path, SOLUTIONS / "answers.py", wrong)
    result = check("roofline", tmp_path, hidden=True, seed=0)
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
    assert first_to_fail >= {row.name for row in solved.tests if not row.hidden}


def test_the_targets_in_the_docstrings_are_computed_ones():
    answers = load(SOLUTIONS / "answers.py", "answers", known=False)

    def told(name):
        return " ".join(getattr(answers, name).__doc__.split())

    add = roofline.vector_add(1000, size=4)
    assert f"1000 elements of 4 bytes is ({add.flops}, {add.bytes})" in told("work")
    h100 = CHIPS["h100"]
    tera = f"{h100.rate('bf16') / 1e12:g} TFLOP/s and {h100.bandwidth / 1e12:g} TB/s"
    rows = roofline.smallest_batch(4096, 4096, 2, h100, "bf16")
    assert f"{tera} a weight of 4096 x 4096 in 2 bytes takes {rows} rows" in told("smallest_batch")
    steps, sizes = (
        [("y", ["x", "bias"]), ("z", ["y", "y"])],
        dict.fromkeys(["x", "bias", "y", "z"], 100),
    )
    one, two = (answers.chain_bytes(steps, cuts, sizes, ["z"]) for cuts in ([], [1]))
    assert f"one kernel moves {one} bytes and two kernels move {two}" in told("chain_bytes")
    for name, flops in (("norm", 7), ("swiglu", 5)):
        assert re.search(rf'"{name}" [^"]* {flops} FLOPs an element', told("mlp"))
    assert roofline.layer_norm(3, 5, 2).flops == 7 * 3 * 5


def test_the_answers_count_what_the_library_counts():
    answers = load(SOLUTIONS / "answers.py", "answers", known=False)
    for m, n, k in ((1, 3, 5), (7, 2, 11)):
        for size in (1, 2, 4):
            cases = {
                ("vector_add", (n,)): roofline.vector_add(n, size),
                ("matvec", (m, n)): roofline.matvec(m, n, size),
                ("matmul", (m, n, k)): roofline.matmul(m, n, k, size),
                ("layer_norm", (m, n)): roofline.layer_norm(m, n, size),
                ("attention", (m, n, k)): roofline.attention(m, n, 1, k, size),
            }
            for asked, work in cases.items():
                assert answers.work(*asked, size) == (work.flops, work.bytes), asked


def test_what_is_given_to_students_does_not_give_the_answers_away():
    given = "".join(path.read_text() for path in (ROOT / "exercises/roofline").rglob("*.py"))
    assert "pairwise" not in given and "hypothesis" not in given and "tl.load" not in given
    answers = (ROOT / "exercises/roofline/answers.py").read_text()
    assert answers.count("raise NotImplementedError") == len(FUNCTIONS)


def test_feedback_points_at_sections_that_the_chapter_has(solved):
    chapter = (ROOT / "book/roofline.md").read_text()
    headings = set(re.findall(r"^#+ (.+)$", chapter, re.MULTILINE))
    assert {row.read for row in solved.tests} <= headings
    assert all(row.hint for row in solved.tests)
