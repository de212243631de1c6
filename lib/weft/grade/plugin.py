"""The pytest plugin: points, hints, stages, a time limit per test, and the report's rows.

    @pytest.mark.points(2, hint="…", read="section", after="test_order", seconds=10, tier="page")
    def test_memory(answers):
        "The first line of the docstring is the row's title."

`answers` calls the functions of answers.py in their own process. A test with `after` counts once
the tests named there have passed: first correct, then within the bytes, then fast. `hidden` marks
what is not copied into exercises/. Each finished row goes at once, as one line of JSON, to
`check`, so a report survives whatever happens to the rest of the run.
"""

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path

import pytest

from weft.grade import worker
from weft.grade.answers import AnswerError, Answers, AnswerStopped
from weft.grade.result import Row
from weft.grade.worker import load
from weft.process.forkserver import Forkserver
from weft.process.job import Job
from weft.process.scratch import scratch

try:
    import hypothesis
except ImportError:  # then the tests have no use for it
    hypothesis = None

SECONDS = 10  # a test's time limit where its marker gives none
TIERS = ("page", "processes", "chip")
# What says by itself what is wrong, without the name of its class.
PLAIN = (AssertionError, AnswerError, AnswerStopped, pytest.skip.Exception, pytest.fail.Exception)
KNOWN = {"hint", "read", "after", "seconds", "tier"}


class Marked:
    """What pytest is told of tests of exercises, whatever is done with them."""

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "points(n, hint, read, after, seconds, tier): graded")
        config.addinivalue_line("markers", "hidden: not copied into exercises/")


def arguments(tests: Path) -> list[str]:
    """Those of pytest for a folder of tests."""
    given = ["-q", "-c", os.devnull, "--rootdir", str(tests), "--tb=native"]
    given += ["--noconftest", "--import-mode=importlib", "--strict-markers"]
    given += ["-p", "no:cacheprovider"]
    given += ["--confcutdir", str(tests)]  # or every folder on the way there is listed, and /tmp
    if hypothesis is not None:
        given += ["-p", "_hypothesis_pytestplugin"]
    return [*given, *(str(path) for path in sorted(tests.glob("test_*.py")))]


def collect(tests: Path, shrink: bool) -> None:
    """Import the tests here, once for all gradings that are forked from this process."""
    if hypothesis is not None:
        draw(shrink)
    asked = arguments(tests)
    if asked[-1].endswith(".py"):
        with scratch() as folder, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder)
            pytest.main([*asked, "--collect-only"], [Marked()])


def draw(shrink: bool) -> None:
    """Say how property tests draw, before they are imported."""
    left_out = {hypothesis.Phase.explain}  # which traces every line, for what nobody here is told
    if not shrink:
        left_out.add(hypothesis.Phase.shrink)
    hypothesis.settings.register_profile(
        "weft",
        derandomize=False,  # where CI is set, the default is to draw the same every time
        deadline=None,
        database=None,
        max_examples=50,
        phases=set(hypothesis.Phase) - left_out,
        report_multiple_bugs=False,  # a student is shown one mistake at a time
        print_blob=False,
        suppress_health_check=[
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.function_scoped_fixture,
        ],
    )
    hypothesis.settings.load_profile("weft")


def grade(job: Job, rank: int, folder: str) -> bytes:
    """What the grader's process does: tell the rows on stdout, and what pytest says on stderr."""
    asked = json.loads(job.payload)
    report = os.dup(1)
    os.dup2(2, 1)
    os.chdir(asked["folder"])
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = os.path.join(asked["folder"], "hypothesis")
    given = arguments(Path(asked["tests"]))
    if hypothesis is not None:
        given.append(f"--hypothesis-seed={asked['seed']}")
    with worker.kept_out(asked["answers"], asked["tests"], asked["scratch"]):
        server = Forkserver.here(worker.clean.channel.fileno())
        pytest.main(given, [Grading(server, report, asked)])
    return b""


class Grading(Marked):
    """One graded run: its rows, the answers' processes, and the clock of the test that runs."""

    def __init__(self, server: Forkserver, report: int, asked: dict):
        self.server, self.report, self.asked = server, report, asked
        self.probe_file = Path(asked["tests"], "probe.py")
        self.rows: dict[str, Row] = {}
        self.marks: dict[str, dict] = {}
        self.current: Answers | None = None
        self.scratch = 0  # folders, one for each test

    def tell(self, fact: dict) -> None:
        """One line of the report."""
        os.write(self.report, json.dumps(fact).encode() + b"\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        hidden, only = self.asked["hidden"], self.asked["only"]
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
            raise AnswerStopped(f"not done within {limit:g} s{asked}")

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
            hint = getattr(call.excinfo.value, "hint", None)
            row.hint = row.hint if hint is None else hint
            row.printed = self.current.printed if self.current else ""
        if report.when == "call" and self.current and self.current.tampered:
            row.score, row.tampered = 0, self.current.tampered
            row.why = row.why or row.tampered
        if report.when == "teardown":
            self.tell({"row": asdict(row)})
        return report

    @pytest.fixture
    def answers(self) -> Iterator[Answers]:
        """The answers' functions, each call in the answer's own process."""
        if self.server.gone:
            self.server.close()
            self.server = Forkserver.here(worker.clean.channel.fileno())
        self.scratch += 1
        scratch = Path(self.asked["scratch"], str(self.scratch))
        scratch.mkdir()
        paths = Path(self.asked["answers"]), Path(self.asked["tests"]), scratch
        self.current = Answers(worker.clean_copy(), self.server, paths)
        yield self.current
        self.current.end()
        self.current = None

    @pytest.fixture
    def probe(self) -> object:
        """The probe's module in the grader's own process, for what both sides have to agree on."""
        return load(self.probe_file, "probe", known=False)

    @pytest.fixture
    def dice(self, request: pytest.FixtureRequest) -> random.Random:
        """Random numbers of this test's own, the same ones again with the same seed."""
        return random.Random(f"{self.asked['seed']} {request.node.name}")

    def pytest_unconfigure(self) -> None:
        self.server.close()


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
    text = text.split("\n\n")[0]  # a long case in front may not hide what came of it
    return text if len(text) <= 700 else f"{text[:400]} … {text[-300:]}"
