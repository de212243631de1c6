"""`check`: run a topic's tests against answers in a pytest of their own and collect the points."""

import json
import os
import random
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from weft.grade import confine
from weft.grade.result import Result, Row

START = 120  # seconds that pytest may take to find the tests
SPARE = 30  # seconds beyond the sum of the tests' own limits
LIBRARY = Path(__file__).parents[2]

Progress = Callable[[int, int, str], None]


def check(
    stem: str,
    answers: str | Path | None = None,
    hidden: bool = False,
    *,
    only: str = "",
    seed: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Grade the answers to one topic's exercises.

    `answers` is a folder with an answers.py, or that file; without it, exercises/<stem> of the
    course that the current folder, or the library, lies in. The tests are the course's, never the
    answers' own, unless there is no course around: then a folder copied from exercises/ is graded
    with the tests that came with it. `only` keeps the tests with that in their names, such as one
    function's, or several with commas between. `progress(done, of, title)` is called after each
    test.

    The answers run in processes of their own, one per test, without access to the tests' process
    or to the report. Raises ValueError for a stem or a folder that is not there.
    """
    path, tests = _find(stem, answers, hidden)
    if find_spec("pytest") is None:
        raise ValueError("grading needs pytest: pip install pytest hypothesis")
    seed = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    with tempfile.TemporaryDirectory(prefix="weft-", ignore_cleanup_errors=True) as folder:
        rows = _run(path, tests, Path(folder), hidden, only, seed, progress)
    return Result(stem, tuple(rows.values()), seed if hidden else None)


def stems(course: Path) -> list[str]:
    """The topics of a course that have exercises."""
    kinds = ("exercises", "solutions")
    return sorted(
        {path.parent.name for kind in kinds for path in course.glob(f"{kind}/*/answers.py")}
    )


def course_around(folder: Path) -> Path | None:
    """The nearest folder, from this one upwards, with answers in exercises/ or solutions/."""
    for candidate in (folder, *folder.parents):
        if stems(candidate):
            return candidate
    return None


def _find(stem: str, answers: str | Path | None, hidden: bool) -> tuple[Path, Path]:
    """The answers.py to grade and the folder of tests to grade it with."""
    allowed = "must be a folder with an answers.py, or that file"
    if not isinstance(answers, str | os.PathLike | None):
        raise ValueError(f"answers is {answers!r}, {allowed}")
    given = Path(answers).resolve() if answers is not None else None
    if given is not None and given.is_dir():
        given = given / "answers.py"
    if given is not None and not given.is_file():
        raise ValueError(f"answers is {str(answers)!r}, {allowed}")
    courses = [course_around(Path.cwd()), course_around(LIBRARY)]
    if given is not None:
        courses.insert(1, course_around(given.parent))
    course = next((c for c in courses if c is not None and stem in stems(c)), None)
    if course is None:
        if given is not None and list(given.parent.glob("test_*.py")):
            return given, given.parent
        known = sorted({s for c in courses if c is not None for s in stems(c)})
        allowed = (
            f"one of: {', '.join(known)}" if known else "a topic of a course around this folder"
        )
        raise ValueError(f"stem is {stem!r}, must be {allowed}")
    tests = course / "solutions" / stem
    if not tests.is_dir():
        if hidden:
            raise ValueError(f"hidden is True, but {course / 'solutions'} has no {stem}")
        tests = course / "exercises" / stem
    return given or course / "exercises" / stem / "answers.py", tests


def _command(
    answers: Path,
    tests: Path,
    scratch: Path,
    report: int,
    hidden: bool,
    only: str,
    seed: int,
) -> list[str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(tests),
    ]
    command += ["--noconftest", "--import-mode=importlib", "--strict-markers"]
    command += ["-p", "no:cacheprovider", "-p", "weft.grade.plugin"]
    command += [f"--weft-answers={answers}", f"--weft-scratch={scratch}", f"--weft-report={report}"]
    if find_spec("_hypothesis_pytestplugin"):
        command += ["-p", "_hypothesis_pytestplugin", f"--hypothesis-seed={seed}"]
    if hidden:
        command += ["--weft-hidden"]
    if only:
        command += [f"--weft-only={only}"]
    return [*command, *(str(path) for path in sorted(tests.glob("test_*.py")))]


def _run(
    answers: Path,
    tests: Path,
    folder: Path,
    hidden: bool,
    only: str,
    seed: int,
    progress: Progress | None,
) -> dict[str, Row]:
    """Start pytest, follow its report line by line, and end it and all below it in any case."""
    scratch = folder / "answer"
    scratch.mkdir()
    read, write = os.pipe()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(LIBRARY), *_absolute(os.environ.get("PYTHONPATH"))]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }
    with open(folder / "pytest.txt", "w+") as said, os.fdopen(read, "rb", buffering=0) as report:
        process = subprocess.Popen(
            _command(answers, tests, scratch, write, hidden, only, seed),
            pass_fds=[write],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(write)
        try:
            rows = _follow(report, progress)
            if rows is not None:
                process.wait(SPARE)
        except subprocess.TimeoutExpired:
            pass  # the rows are in; what is left is ended below
        finally:
            if process.poll() is None:  # else it has ended all below it, and its id may be reused
                confine.end_descendants(process.pid)
                process.kill()
            process.wait()
        if rows == {} and only:
            raise ValueError(f"only is {only!r}, must be part of a test's name in {tests}")
        if not rows:
            said.seek(0)
            raise RuntimeError(f"the tests in {tests} do not run:\n{said.read()[-3000:]}")
    return rows


def _absolute(path: str | None) -> list[str]:
    return [os.path.abspath(entry) for entry in (path or "").split(os.pathsep) if entry]


def _follow(report, progress: Progress | None) -> dict[str, Row] | None:
    """The rows as they come in, until the pipe closes or time is up; None before the first line."""
    rows: dict[str, Row] | None = None
    done, pending = 0, b""
    deadline = time.monotonic() + START
    wait = selectors.DefaultSelector()
    wait.register(report, selectors.EVENT_READ)
    while wait.select(max(0.0, deadline - time.monotonic())):
        got = report.read(1 << 16)
        if not got:
            break
        *lines, pending = (pending + got).split(b"\n")
        for line in map(json.loads, lines):
            if "rows" in line:
                rows = {row["name"]: Row(**row) for row in line["rows"]}
                deadline = time.monotonic() + line["seconds"] + SPARE
                continue
            row = Row(**line["row"])
            rows[row.name] = row
            done += 1
            if progress is not None:
                progress(done, len(rows), row.title)
    return rows
