"""`check`: run a topic's tests against answers in a pytest of their own and collect the points."""

import json
import os
import random
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

from weft.grade.result import Result, Row
from weft.grade.worker import LIBRARY, forkserver
from weft.process.forkserver import Forkserver
from weft.process.job import Job
from weft.process.scratch import scratch

START = 120  # seconds that pytest may take to find the tests
SPARE = 30  # seconds beyond the sum of the tests' own limits

Progress = Callable[[int, int, str], None]


def check(
    stem: str,
    answers: str | Path | None = None,
    hidden: bool = False,
    *,
    only: str = "",
    seed: int | None = None,
    progress: Progress | None = None,
    server: Forkserver | None = None,
) -> Result:
    """Grade the answers to one topic's exercises.

    `answers` is a folder with an answers.py, or that file; without it, exercises/<stem> of the
    course that the current folder, or the library, lies in. The tests are the course's, never the
    answers' own, unless there is no course around: then a folder copied from exercises/ is graded
    with the tests that came with it. `only` keeps the tests with that in their names, such as one
    function's, or several with commas between. `progress(done, of, title)` is called after each
    test. `server`, of `worker.forkserver`, spares gradings of one topic the imports.

    The answers run in processes of their own, one per test, without access to the tests' process
    or to the report. Raises ValueError for a stem or a folder that is not there.
    """
    path, tests = _find(stem, answers, hidden)
    if find_spec("pytest") is None:
        raise ValueError("grading needs pytest: pip install pytest hypothesis")
    seed = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    with (
        scratch() as folder,
        nullcontext(server) if server else forkserver(tests / "probe.py") as warm,
    ):
        job = _job(path, tests, folder, hidden, only, seed)
        rows, said = _rows(warm, job, progress)
    if rows == {} and only:
        raise ValueError(f"only is {only!r}, must be part of a test's name in {tests}")
    if not rows:
        raise RuntimeError(f"the tests in {tests} do not run:\n{said[-3000:]}")
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
        raise ValueError(unknown(stem, courses))
    tests = course / "solutions" / stem
    if not tests.is_dir():
        if hidden:
            raise ValueError(f"hidden is True, but {course / 'solutions'} has no {stem}")
        tests = course / "exercises" / stem
    return given or course / "exercises" / stem / "answers.py", tests


def unknown(stem: str, courses: Iterable[Path | None]) -> str:
    """What to say of a stem that is in none of the courses."""
    known = sorted({s for course in courses if course is not None for s in stems(course)})
    if known:
        return f"stem is {stem!r}, must be one of: {', '.join(known)}"
    return (
        f"stem is {stem!r}, must be a topic of a course around this folder: the exercises come "
        "with a checkout of the book, in which this is to be run"
    )


def _job(answers: Path, tests: Path, folder: Path, hidden: bool, only: str, seed: int) -> Job:
    """What the grader's process is asked."""
    scratch = folder / "answer"
    scratch.mkdir()
    asked = {
        "answers": str(answers),
        "tests": str(tests),
        "folder": str(folder),
        "scratch": str(scratch),
        "hidden": hidden,
        "only": only,
        "seed": seed,
    }
    return Job("weft.grade.plugin:grade", json.dumps(asked).encode())


def _rows(
    server: Forkserver, job: Job, progress: Progress | None
) -> tuple[dict[str, Row] | None, str]:
    """The rows that a grader has told until it ended or time was up, and what pytest said.

    None where it did not come as far as to name the tests.
    """
    rows: dict[str, Row] | None = None
    done, pending, said = 0, b"", b""
    deadline = time.monotonic() + START
    with server.start(job) as grader:
        while grader.ready(deadline):
            match grader.receive():
                case ("ended", _):
                    break
                case ("lost", words):
                    said += words.encode()
                    break
                case ("wrote", _, "stderr", data):
                    said += data
                case ("wrote", _, "stdout", data):
                    *lines, pending = (pending + data).split(b"\n")
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
    return rows, said.decode(errors="replace")
