"""A class's submissions: graded side by side, each for itself, and told in one report."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from weft import cli
from weft.grade import Result, Row
from weft.grade.classroom import Warm, grade_all
from weft.grade.gradebook import Entry, Gradebook, seed_of
from weft.grade.gradepage import page
from weft.grade.plugin import SECONDS
from weft.grade.submission import submissions
from weft.grade.topic import Topic
from weft.grade.zoo import ZooAnswer, write_answers, zoo
from weft.process.end import descendants
from weft.process.job import Job
from weft.run.files import alone

STEM, ONLY, SEED = "roofline", "walk,stalls", 5
FUNCTIONS = ["walk", "stalls"]


@pytest.fixture(scope="module")
def solution(root) -> Path:
    return root / "solutions" / STEM / "answers.py"


@pytest.fixture(scope="module")
def wrong(solution) -> dict[str, ZooAnswer]:
    return {one.name: one for one in zoo(solution.parent)}


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory, solution, wrong) -> Path:
    """Six students' submissions, as a learning platform hands them over."""
    folder = tmp_path_factory.mktemp("class") / "week3"
    folder.mkdir()
    (folder / "ada_11_answers.py").write_text(solution.read_text())
    for name, inside in (("bob_22_assignsubmission_file_", "."), ("cleo_33", "home/work")):
        (folder / name / inside).mkdir(parents=True)
    (folder / "bob_22_assignsubmission_file_/answers.py").write_text(Topic(STEM).stub)
    write_answers(folder / "cleo_33/home/work", solution, [wrong["walk_program_by_program"]])
    path = write_answers(folder, solution, [wrong["stalls_one_more"]])
    with zipfile.ZipFile(folder / "dora_44.zip", "w") as archive:
        archive.write(path, "answers.py")
    path.unlink()
    (folder / "eve_55_answers-2.py").write_text("def walk(:\n")
    (folder / "fred_66.pdf").write_bytes(b"%PDF")
    return folder


@pytest.fixture(scope="module")
def graded(handed_in, tmp_path_factory) -> tuple[Path, str, int]:
    """The report of one run of the command, what it printed, and its exit code."""
    out = tmp_path_factory.mktemp("out")
    asked = ["--only", ONLY, "--seed", str(SEED), "--hidden", "--out", str(out)]
    run = weft("grade", STEM, "--class", str(handed_in), *asked)
    assert run.stderr == ""
    return out, run.stdout, run.returncode


def weft(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "weft", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def points(lost: ZooAnswer | None = None) -> tuple[str, ...]:
    """In all, and for each function: what there is to be had without what a wrong answer loses."""
    had = dict.fromkeys(FUNCTIONS, 0)
    for test, mark in (topic := Topic(STEM)).marks.items():
        if topic.function(test) in had and not (lost and test in lost.fails):
            had[topic.function(test)] += mark.args[0]
    return tuple(f"{count:g}" for count in (sum(had.values()), *had.values()))


def test_every_student_has_a_line_and_a_broken_submission_is_only_that(graded, wrong):
    out, said, code = graded
    lines = list(csv.DictReader(io.StringIO((out / "grades.csv").read_text())))
    got = {row["student"]: tuple(row[name] for name in ("points", *FUNCTIONS)) for row in lines}
    assert got == {
        "ada_11": points(),
        "bob_22": ("0", "0", "0"),
        "cleo_33": points(wrong["walk_program_by_program"]),
        "dora_44": points(wrong["stalls_one_more"]),
        "eve_55": ("0", "0", "0"),
        "fred_66": ("0", "0", "0"),
    }
    assert {row["of"] for row in lines} == {points()[0]}
    notes = {row["student"]: row["note"] for row in lines if row["note"]}
    assert set(notes) == {"bob_22", "eve_55", "fred_66"}
    assert notes["bob_22"] == "not written yet"
    assert notes["eve_55"].startswith("answers.py cannot be imported: SyntaxError")
    assert notes["fred_66"] == "there is no answers.py in what was handed in (fred_66.pdf)"
    assert code == 0
    assert all(re.search(rf"^{name} +{got[name][0]} ", said, re.MULTILINE) for name in got)
    assert f"{STEM}, seed {SEED}: 6 submissions\n" in said


def test_what_most_missed_comes_first(graded):
    _, said, _ = graded
    _, _, table = said.partition("What most missed, of 5 graded\n")
    rows = [line.split(maxsplit=3) for line in table.partition("\n\n")[0].splitlines()[1:]]
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), reverse=True)
    assert {row[2] for row in rows} == set(FUNCTIONS)
    by_title = {row[3]: row[:2] for row in rows}
    assert by_title["Walk: waves of programs, several steps."] == ["1", "2"]


def test_the_report_is_data_and_a_page_that_loads_nothing(graded, wrong):
    out, _, _ = graded
    report = json.loads((out / "grades.json").read_text())
    assert (report["stem"], report["seed"], report["only"]) == (STEM, SEED, ONLY)
    scores = {entry["student"]: entry["score"] for entry in report["submissions"]}
    assert f"{scores['ada_11']:g}" == points()[0] > points(wrong["walk_program_by_program"])[0]
    assert (scores["eve_55"], scores["fred_66"], len(scores)) == (0, 0, 6)
    shown = (out / "grades.html").read_text()
    assert not re.search(r"<(script|link|img|iframe)|url\(|https?:", shown)
    assert shown.count("<details>") == 6 and shown.count("class='weft-grade'") == 5
    assert f"seed {SEED}" in shown and "Walk: waves of programs, several steps." in shown


def test_the_same_command_grades_only_what_is_new(graded, handed_in, solution, monkeypatch):
    out, _, _ = graded
    seen = []
    monkeypatch.setattr("weft.grade.classroom.check", lambda stem, folder, **asked: (
        seen.append((folder / "answers.py").read_text()) or Result(stem)
    ))  # fmt: skip

    def again(**changed) -> int:
        terms = {"hidden": True, "only": ONLY, "seed": SEED} | changed
        book = Gradebook(Topic(STEM), **terms)
        everyone = submissions(handed_in)
        kept = book.load(out / "grades.json")
        seen.clear()
        entries = list(grade_all(book, everyone, kept, 2))
        assert len(entries) == len(book.entries) == 6
        return len(seen)

    assert seed_of(out / "grades.json") == SEED
    assert again() == 0
    assert again(seed=SEED + 1) == again(hidden=False) == again(only="walk") == 5
    late = handed_in / "ada_11_answers.py"
    late.write_text("# late\n" + solution.read_text())
    assert again() == 1 and seen[0].startswith("# late")
    late.write_text(solution.read_text())
    monkeypatch.setattr(Topic, "digest", "other tests")
    assert again() == 5


def book_of(*reasons: str) -> Gradebook:
    """A book with one student, s0, s1, …, for each reason why the first test of two is lost."""
    book = Gradebook(Topic(STEM), False, "", 0)
    for number, why in enumerate(reasons):
        first = Row("test_walk_single", "<First>", 1, score=0 if why else 1, why=why)
        after = Row("test_tiling_real", "Second", 2, why="counts once this passes: <First>")
        result = Result(STEM, (first, after))
        book.entries[f"s{number}"] = Entry(f"s{number}", "f.py", f"hash {number}", result)
    return book


def test_what_may_come_out_otherwise_is_not_kept(tmp_path):
    file = tmp_path / "grades.json"
    book = book_of("", "walk(): expected 1, got 2", "not done within 10 s", "not reached: …")
    book.entries["s4"] = Entry("s4", "f.py", "hash 4", unfit="not graded: no memory")
    file.write_text(book.json())
    assert book.load(file) == {f"hash {n}": book.entries[f"s{n}"] for n in (0, 1)}
    for text in ("", '{"stem": "roofl', "[]"):
        file.write_text(text)
        assert book.load(file) == {} and seed_of(file) is None


def test_failed_is_told_from_not_come_so_far():
    book = book_of("expected 1, got 2", "not written yet", "answers.py cannot be imported: x", "")
    first, second = book.missed()
    assert (first.row.title, first.function, first.failed, first.open) == ("<First>", "walk", 1, 2)
    assert (second.failed, second.open) == (0, 4)
    assert [entry.note for entry in book.sorted()][1:3] == [
        "not written yet",
        "answers.py cannot be imported: x",
    ]


def test_names_and_reasons_are_text_for_spreadsheets_and_browsers():
    book = book_of("=1+1\n<b>")
    book.entries = {"=x<i>": Entry("=x<i>", "-f.py", "", book.entries["s0"].result)}
    (line,) = list(csv.DictReader(io.StringIO(book.csv())))
    assert (line["student"], line["file"], line["note"]) == ("'=x<i>", "'-f.py", "'=1+1 <b>")
    shown = page(book)
    assert "<i>" not in shown and "<b>" not in shown and "=x&lt;i&gt;" in shown


def test_a_grading_that_breaks_is_a_line_and_the_next_has_a_process(tmp_path, solution):
    nap, right = 96_000_000 + os.getpid(), solution.read_text()
    for name, text in {"a": right, "b": SLOW.format(nap=nap), "c": right}.items():
        (tmp_path / f"{name}.py").write_text(text)
    book = Gradebook(Topic(STEM), False, "walk_single", 0)
    with (
        closing(grade_all(book, submissions(tmp_path), {}, 1)) as entries,
        ThreadPoolExecutor(1) as pool,
    ):
        killed = pool.submit(kill_all_that_grade, nap)
        first, second, third = entries
        killed.result()
    assert (first.score, third.score) == (1, 1)
    said = second.unfit or second.result.tests[0].why
    assert said.startswith("not graded: ") or "the grader was ended before this test" in said


def kill_all_that_grade(nap: int) -> None:
    """Once an answer sleeps so long; the eldest first, so that none tells of another's end."""
    until = time.monotonic() + 60
    while not sleeping(nap):
        assert time.monotonic() < until, "nothing is being graded"
        time.sleep(0.05)
    for process in sorted(descendants(os.getpid())):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        while process in descendants(os.getpid()):
            time.sleep(0.001)


def test_memory_is_shared_between_those_at_work(tmp_path):
    with Warm(Path("probe.py"), 4, tmp_path) as warm, warm.start(Job("builtins:print", b"")) as job:
        assert job.ready(time.monotonic() + 60)
        limits = Path("/proc", str(warm.server.process.pid), "limits").read_text()
    assert f"Max data size             {warm.share}" in limits
    assert warm.share == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


SLOW = """
import subprocess, time
subprocess.Popen(["sleep", "{nap}"], start_new_session=True)
time.sleep({nap})
"""


def test_an_interrupt_ends_everything_and_keeps_what_is_done(tmp_path, handed_in, solution):
    nap, folder, scratch = 97_000_000 + os.getpid(), tmp_path / "class", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    (folder / "ada.py").write_text(solution.read_text())
    (folder / "bob.pdf").touch()
    for name in ("cleo", "dora", "eve"):
        (folder / f"{name}.py").write_text(SLOW.format(nap=nap))
    command = [sys.executable, "-m", "weft", "grade", STEM, "--class", str(folder), "--jobs", "2"]
    environment = os.environ | {"TMPDIR": str(scratch)}
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command + ["--only", "walk_single"], env=environment, **told) as run:
        until = time.monotonic() + 60
        while len(sleeping(nap)) < 2 or not (tmp_path / "class-roofline/grades.json").exists():
            assert time.monotonic() < until and run.poll() is None, "nothing is being graded"
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        since = time.monotonic()
        said, complaint = run.communicate(timeout=30)
    assert time.monotonic() - since < SECONDS / 2, "it waited for the tests' own limits"
    assert (run.returncode, complaint) == (130, "")
    assert sleeping(nap) == [] and list(scratch.iterdir()) == []
    report = json.loads((tmp_path / "class-roofline/grades.json").read_text())
    scores = {entry["student"]: entry["score"] for entry in report["submissions"]}
    assert scores["ada"] == 1 and "bob" in scores and len(scores) < 5
    assert f"{len(scores)} submissions of 5; the same command does the rest" in said


def sleeping(nap: int) -> list[int]:
    """The processes that sleep so long."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(nap).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--class", "nowhere"], "class is 'nowhere', must be a folder with a .py file, a folder"),
        (["--class", "week", "--jobs", "0"], "jobs is 0, must be at least 1"),
        (["--class", "week", "--only", "nothing"], "only is 'nothing', must be part of a test's"),
        (["--class", "week", "--json", "a.json"], "--class and --json do not go together"),
        (["--class", "week", "--out", "file"], "file: File exists"),
        (["--class", "week", "--out", "week/out"], "out is 'week/out', must be outside of"),
        (["--out", "there"], "--out goes with --class only"),
        (["--jobs", "3"], "--jobs goes with --class only"),
    ],
)
def test_wrong_usage_is_a_line(tmp_path, monkeypatch, capsys, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    Path("week").mkdir()
    Path("week/a.py").touch()
    Path("file").touch()
    assert cli.main(["grade", STEM, *arguments]) == 2
    shown = capsys.readouterr()
    assert complaint in shown.err and shown.err.count("\n") == 1
    assert sorted(p.as_posix() for p in Path().rglob("*")) == ["file", "week", "week/a.py"]


@pytest.mark.parametrize(
    ("there", "complaint"),
    [
        (lambda out: (out / "grades.csv").write_text("mine"), "somebody else's grades.csv lies"),
        (lambda out: (out / "grades.json").write_text("{}"), "somebody else's grades.json lies"),
        (lambda out: (out / "grades.json").write_text("[" * 10**6), "else's grades.json lies"),
        (lambda out: os.mkfifo(out / "grades.html"), "grades.html: it is no file but a pipe"),
        (lambda out: os.mkfifo(out / "grades.json"), "grades.json: it is no file but a pipe"),
    ],
)
def test_a_report_takes_nobodys_place(tmp_path, capsys, there, complaint):
    (tmp_path / "week").mkdir()
    (tmp_path / "week/a.py").touch()
    out = tmp_path / "out"
    out.mkdir()
    there(out)
    before = [(path.name, path.stat().st_mtime_ns) for path in out.iterdir()]
    assert cli.main(["grade", STEM, "--class", f"{tmp_path}/week", "--out", str(out)]) == 2
    assert complaint in capsys.readouterr().err
    assert [(path.name, path.stat().st_mtime_ns) for path in out.iterdir()] == before


def test_an_earlier_report_that_cannot_be_is_named(tmp_path):
    book, report = book_of(), tmp_path / "grades.json"
    told = json.loads(book.json()) | {"submissions": [{"student": "ada"}]}
    report.write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"grades\.json is damaged: KeyError.* move it away"):
        book.load(report)


def test_two_gradings_into_one_folder(tmp_path, capsys):
    (tmp_path / "week").mkdir()
    (tmp_path / "week/a.py").touch()
    (tmp_path / "out").mkdir()
    with alone(tmp_path / "out", ""):
        code = cli.main(["grade", STEM, "--class", f"{tmp_path}/week", "--out", f"{tmp_path}/out"])
    assert code == 2
    assert "into which another grading writes, must be one" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []
