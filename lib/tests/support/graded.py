"""What holds for the exercises of every topic, both ways: solutions get everything, stubs nothing,
and each wrong answer of the zoo loses exactly what it must.

A topic's test file has a class of its own that inherits from Exercises and says what is special.
"""

import re
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from weft.grade import check
from weft.grade.result import Result, Row
from weft.grade.worker import forkserver, load
from weft.grade.zoo import right, rounds, write_answers, zoo
from weft.process.forkserver import Forkserver

ROOT = Path(__file__).resolve().parents[3]
TORCH = find_spec("torch") is not None
CHIP = TORCH and find_spec("triton") is not None
GRADIENTS = "torch.fx.experimental.symbolic_shapes"  # what backward loads, when it has to
SLIPS = ("not ", "ValueError", "KeyError", "NameError")  # a mistake in the zoo, not the student's


@cache
def solved(exercises: type["Exercises"]) -> Result:
    """What a topic's solutions get, graded once."""
    return exercises.check(exercises.solutions(), hidden=True)


class Exercises:
    """The tests of a topic: `stem`, the functions to write, the tiers that have a test, and words
    of the solutions that what students are given must not contain."""

    stem: str
    also: tuple[str, ...] = ()  # chapters without exercises of their own, to which it points, too
    functions: tuple[str, ...]
    tiers: tuple[str, ...]
    secrets: tuple[str, ...]
    styled: tuple[str, ...] = ("page",)  # the tiers whose functions have right answers to compare
    server: Forkserver

    def runs(self, row: Row) -> bool:
        """Whether what a test needs is installed here."""
        return {"page": True, "processes": TORCH, "chip": CHIP}[row.tier]

    @classmethod
    def solutions(cls) -> Path:
        """Where the solutions and the zoo are."""
        return ROOT / "solutions" / cls.stem

    def load(self, name: str) -> ModuleType:
        """A file of the solutions as a module: "answers", or a file of tests."""
        return load(self.solutions() / f"{name}.py", name, known=False)

    def told(self, name: str) -> str:
        """What a function's docstring tells the student, in one line."""
        return " ".join(getattr(self.load("answers"), name).__doc__.split())

    def closed(self, folder: Path, cheat: str, tests: tuple[str, ...], only: str = "") -> Result:
        """Grade answers that import the library's own, and see that they are told so."""
        (folder / "answers.py").write_text(cheat)
        result = self.check(folder, only=only)
        rows = {row.name: row for row in result.tests}
        for row in (rows[name] for name in tests):
            assert not self.runs(row) or "closed while you are graded" in row.why, row
        return result

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each round of wrong answers, and of right ones in other styles."""
        if "wrong" in metafunc.fixturenames:
            wrong = rounds(zoo(self.solutions()))
            names = [" ".join(one.name for one in row) for row in wrong]
            metafunc.parametrize("wrong", wrong, ids=names)
        if "styles" in metafunc.fixturenames:
            styles = rounds(right(self.solutions()))
            names = [" ".join(one.name for one in row) for row in styles]
            metafunc.parametrize("styles", styles, ids=names)

    @classmethod
    def setup_class(cls) -> None:
        """Have one process that forks the graders, with what ranks need where there are any.

        Wrong answers are to fail; nobody reads by how small an input.
        """
        modules = ("weft.run.world", GRADIENTS) if TORCH and "processes" in cls.tiers else ()
        cls.server = forkserver(cls.solutions() / "probe.py", *modules, shrink=False)

    @classmethod
    def teardown_class(cls) -> None:
        cls.server.close()

    @classmethod
    def check(cls, folder: Path, hidden: bool = False, only: str = "") -> Result:
        """What the answers in a folder get."""
        return check(cls.stem, folder, hidden=hidden, only=only, seed=0, server=cls.server)

    @pytest.fixture
    def solved(self) -> Result:
        """What the solutions get."""
        return solved(type(self))

    def test_solutions_get_all_twenty_points(self, solved):
        assert solved.max == 20
        assert all(row.passed for row in solved.tests if self.runs(row)), str(solved)
        assert sum(not row.hidden for row in solved.tests) >= 10
        assert sum(row.max for row in solved.tests if row.hidden) >= 4
        assert {row.tier for row in solved.tests} == set(self.tiers)

    def test_stubs_get_nothing_and_say_so(self):
        result = self.check(ROOT / "exercises" / self.stem, hidden=True)
        assert (result.score, result.max) == (0, 20)
        for row in result.tests:
            bare = "not written yet" if self.runs(row) else "not run: needs"
            assert row.why.startswith((bare, "counts once")), row

    def test_wrong_answers_lose_exactly_what_they_must(self, wrong, solved, tmp_path):
        write_answers(tmp_path, self.solutions() / "answers.py", wrong)
        functions = {one.function for one in wrong}
        alike = (one for one in zoo(self.solutions()) if one.function in functions)
        asked = {name for one in alike for name in one.fails}  # all tests of these functions
        result = self.check(tmp_path, hidden=True, only=",".join(asked))
        runs = {row.name for row in solved.tests if row.passed}  # what could be run here
        lost = {row.name: row for row in result.tests if not row.passed and row.name in runs}
        assert lost.keys() == runs & set().union(*(one.fails for one in wrong)), str(result)
        for row in lost.values():
            assert not row.why.startswith(SLIPS), row.why

    def test_right_answers_in_other_styles_keep_all_points(self, styles, tmp_path):
        write_answers(tmp_path, self.solutions() / "answers.py", styles)
        asked = {f"test_{one.function.removesuffix('_kernel')}" for one in styles}
        result = self.check(tmp_path, hidden=True, only=",".join(asked))
        wanted = [row for row in result.tests if self.runs(row)]
        assert wanted and all(row.passed for row in wanted), str(result)

    def test_every_function_has_two_right_answers_in_other_styles(self, solved):
        counted = Counter(one.function for one in right(self.solutions()))
        rows = {row.name for row in solved.tests if row.tier in self.styled}
        named = {max((f for f in self.functions if f"test_{f}" in name), key=len) for name in rows}
        assert {name for name in named if counted[name] < 2} <= {"softmax"}  # which is of tensors

    def test_every_function_on_the_page_is_asked_for_sizes_drawn_at_random(self, solved):
        hidden = {row.name for row in solved.tests if row.hidden}
        missing = [
            name for name in self.functions if not any(f"test_{name}" in row for row in hidden)
        ]
        tiers = {row.tier for row in solved.tests for name in missing if f"test_{name}" in row.name}
        assert "page" not in tiers, missing

    def test_every_function_has_four_wrong_answers(self):
        counted = Counter(name for wrong in zoo(self.solutions()) for name in wrong.replaces)
        assert all(counted[name] >= 4 for name in self.functions)

    def test_every_test_has_something_to_find(self, solved):
        order = [row.name for row in solved.tests]
        wrong = zoo(self.solutions())
        assert {name for one in wrong for name in one.fails} == set(order)
        # A test that only ever fails because an earlier one did would test nothing.
        first = {min(one.fails, key=order.index) for one in wrong}
        assert first >= {row.name for row in solved.tests if not row.hidden}

    def test_what_is_given_to_students_does_not_give_the_answers_away(self):
        folder = ROOT / "exercises" / self.stem
        given = "".join(path.read_text() for path in folder.rglob("*.py"))
        solutions = "".join(path.read_text() for path in self.solutions().glob("*.py"))
        for word in ("hypothesis", *self.secrets):
            assert word in solutions and word not in given, word
        stubs = (folder / "answers.py").read_text()
        assert stubs.count("raise NotImplementedError") == len(self.functions)

    def test_feedback_points_at_sections_that_the_chapter_has(self, solved):
        chapters = [(ROOT / f"book/{stem}.md").read_text() for stem in (self.stem, *self.also)]
        headings = set(re.findall(r"^#+ (.+)$", "\n".join(chapters), re.MULTILINE))
        assert {row.read for row in solved.tests} <= headings
        assert all(row.hint for row in solved.tests)
