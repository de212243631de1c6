"""The pytest plugin: points, hints, stages, a time limit per test, and the report's rows.

    @pytest.mark.points(2, hint="…", read="section", after="test_order", seconds=10, tier="page")
    def test_memory(answers):
        "The first line of the docstring is the row's title."

`answers` calls the functions of answers.py in their own process. A test with `after` counts once
the tests named there have passed: first correct, then within the bytes, then fast. `hidden` marks
what is not copied into exercises/. Each finished row goes at once, as one line of JSON, into the
pipe that `check` reads, so a report survives whatever happens to the rest of the run.
"""

import importlib.util
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from weft.grade import confine
from weft.grade.answers import AnswerError, Answers, Stopped, Workshop
from weft.grade.result import Row
from weft.grade.worker import load

SECONDS = 10  # a test's time limit where its marker gives none
TIERS = ("page", "processes", "chip")
# What says by itself what is wrong, without the name of its class.
PLAIN = (AssertionError, AnswerError, Stopped, pytest.skip.Exception, pytest.fail.Exception)
KNOWN = {"hint", "read", "after", "seconds", "tier"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("weft.grade")
    group.addoption("--weft-answers", type=Path, help="the answers.py to grade")
    group.addoption("--weft-hidden", action="store_true", help="run hidden tests too")
    group.addoption("--weft-only", default="", help="run tests named so; or that,that")
    group.addoption("--weft-scratch", type=Path, help="the folder an answer may write to")
    group.addoption("--weft-report", type=int, help="file descriptor for the report's rows")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "points(n, hint, read, after, seconds, tier): graded")
    config.addinivalue_line("markers", "hidden: not copied into exercises/")
    config.pluginmanager.register(Grading(config), "weft-grading")
    if importlib.util.find_spec("hypothesis"):
        from hypothesis import HealthCheck, settings

        settings.register_profile(
            "weft",
            derandomize=False,  # where CI is set, the default is to draw the same every time
            deadline=None,
            database=None,
            max_examples=50,
            print_blob=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        )
        settings.load_profile("weft")


class Grading:
    """One graded run: its rows, its workshop, and the clock of the test that runs."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.report = config.getoption("--weft-report")
        self.rows: dict[str, Row] = {}
        self.marks: dict[str, dict] = {}
        self.workshop: Workshop | None = None
        self.current: Answers | None = None
        if self.report is not None:
            os.set_inheritable(self.report, False)
            confine.die_with_parent()
            confine.adopt_orphans()
            confine.hide_memory()

    def tell(self, fact: dict) -> None:
        if self.report is not None:
            os.write(self.report, json.dumps(fact).encode() + b"\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        hidden = self.config.getoption("--weft-hidden")
        only = self.config.getoption("--weft-only")
        parts = [part.strip() for part in only.split(",") if part.strip()]
        for item in items:
            self.marks[item.name] = _mark(item)
        items[:] = [
            item
            for item in items
            if (hidden or not item.get_closest_marker("hidden"))
            and (not parts or any(part in item.name for part in parts))
        ]
        for item in items:
            unknown = set(self.marks[item.name]["after"]) - set(self.rows)
            if unknown and not only:
                raise pytest.UsageError(f"{item.name} comes after {unknown}, not seen before it")
            self.rows[item.name] = _row(item, self.marks[item.name])
        limits = sum(self.marks[name]["seconds"] for name in self.rows)
        self.tell({"rows": [asdict(row) for row in self.rows.values()], "seconds": limits})

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        for name in self.marks[item.name]["after"]:
            before = self.rows.get(name)
            if before is not None and before.score < before.max:
                pytest.skip(f"counts once this passes: {before.title}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        limit = self.marks[item.name]["seconds"]

        def strike(number: int, frame: object) -> None:
            asked = f", in {self.current.asked}" if self.current and self.current.asked else ""
            raise Stopped(f"not done within {limit:g} s{asked}")

        before = signal.signal(signal.SIGALRM, strike)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo
    ) -> Iterator[pytest.TestReport]:
        report = yield
        row = self.rows[item.name]
        if report.when == "call" and report.passed:
            row.score, row.why = row.max, ""
        elif report.failed or report.skipped:
            row.score, row.why = 0, _why(call.excinfo)
            row.printed = self.current.printed if self.current else ""
        if report.when == "teardown":
            self.tell({"row": asdict(row)})
        return report

    @pytest.fixture
    def answers(self, request: pytest.FixtureRequest) -> Iterator[Answers]:
        """The answers' functions, each call in the answer's own process."""
        if self.workshop is None:
            here = request.path.parent
            path = self.config.getoption("--weft-answers") or here / "answers.py"
            factory = request.getfixturevalue("tmp_path_factory")
            scratch = self.config.getoption("--weft-scratch") or factory.mktemp("answer")
            self.workshop = Workshop(path.resolve(), here / "probe.py", scratch)
        self.workshop.start()  # here, where the test's clock does not run yet
        self.current = Answers(self.workshop)
        yield self.current
        self.current.end()
        self.current = None

    @pytest.fixture
    def probe(self, request: pytest.FixtureRequest) -> object:
        """The probe's module in the grader's own process, for what both sides have to agree on."""
        return load(request.path.parent / "probe.py", "probe", known=False)

    def pytest_unconfigure(self) -> None:
        if self.workshop is not None:
            self.workshop.close()
        if self.report is not None:
            confine.end_descendants(os.getpid())


def _mark(item: pytest.Item) -> dict:
    mark = item.get_closest_marker("points")
    if mark is None or len(mark.args) != 1 or set(mark.kwargs) - KNOWN:
        raise pytest.UsageError(f"{item.nodeid} needs points(n, {', '.join(sorted(KNOWN))})")
    given = {"hint": "", "read": "", "seconds": SECONDS, "tier": "page", "after": ()} | mark.kwargs
    if isinstance(given["after"], str):
        given["after"] = (given["after"],)
    if given["tier"] not in TIERS:
        raise pytest.UsageError(f"{item.nodeid} has tier {given['tier']!r}, not one of {TIERS}")
    return given | {"points": mark.args[0]}


def _row(item: pytest.Item, mark: dict) -> Row:
    about = (item.function.__doc__ or item.name).strip()
    return Row(
        name=item.name,
        title=" ".join(about.split("\n\n")[0].split()),
        max=mark["points"],
        hidden=bool(item.get_closest_marker("hidden")),
        tier=mark["tier"],
        hint=mark["hint"],
        read=mark["read"],
        why="not reached: the grader was ended before this test",
    )


def _why(excinfo: pytest.ExceptionInfo) -> str:
    """The first paragraph of what went wrong, without pytest's decoration."""
    text = str(excinfo.value).strip() or excinfo.typename
    if not isinstance(excinfo.value, PLAIN):
        text = f"{excinfo.typename}: {text}"
    return text.split("\n\n")[0][:600]
