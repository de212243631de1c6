"""An autograder for Gradescope, in a folder laid out as its container, with a bare environment."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from weft import cli
from weft.grade.build import exercises
from weft.grade.gradescope import MARKER, make, requirements
from weft.grade.topic import Topic

STEM, SEED = "roofline", 7
QUICK = "walk_single"
HANGS = """
def walk(*given):
    while True:
        pass
"""
KILLS = """
import os, signal
def walk(*given):
    pid = os.getpid()
    while pid > 1:
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        try:
            os.kill(pid, signal.SIGKILL) if pid > 1 else None
        except PermissionError:
            pass
    os._exit(0)
"""
CHEATS = """
import pytest
@pytest.mark.points(99)
def test_free(answers):
    pass
"""


class Box:
    """A folder with source/ and run_autograder in it, as Gradescope's image has in /autograder."""

    def __init__(self, folder: Path, only: str = ""):
        self.folder, self.source = folder, folder / "source"
        make(self.source, STEM, only, SEED)
        shutil.copy(self.source / "run_autograder", folder)

    def grade(
        self, files: dict[str, str], path: str = ""
    ) -> tuple[dict, subprocess.CompletedProcess]:
        """results.json for an upload, and the run that wrote it."""
        for name in ("submission", "results"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        for name, text in files.items():
            file = self.folder / "submission" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        path = path or f"{Path(sys.executable).parent}:/usr/bin:/bin"
        command = ["env", "-i", f"PATH={path}", str(self.folder / "run_autograder")]
        run = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=300)
        assert [entry.name for entry in (self.folder / "results").iterdir()] == ["results.json"]
        return json.loads((self.folder / "results/results.json").read_text()), run


@pytest.fixture(scope="module")
def box(tmp_path_factory) -> Box:
    """The whole topic."""
    return Box(tmp_path_factory.mktemp("box"))


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Box:
    """One test of it."""
    return Box(tmp_path_factory.mktemp("quick"), QUICK)


@pytest.fixture(scope="module")
def right(root) -> str:
    return (root / "solutions" / STEM / "answers.py").read_text()


def test_right_answers_somewhere_in_an_upload_get_every_point(box, right):
    report, run = box.grade({"homework/answers.py": right, "homework/notes.md": ""})
    page = [test for test in report["tests"] if test["tags"] == ["page"]]
    assert page and all(test["status"] == "passed" for test in page)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert report["score"] == sum(t["score"] for t in report["tests"])
    assert sum(t["max_score"] for t in report["tests"]) == Topic(STEM).points() == 20
    assert {t["visibility"] for t in report["tests"]} == {"visible", "after_published"}
    assert report["stdout_visibility"] == "hidden"
    assert 0 < report["execution_time"] < 300
    assert report["score"] == 20 or not (find_spec("torch") and find_spec("triton"))


def test_stubs_get_nothing_and_every_test_is_listed(box):
    report, run = box.grade({"answers.py": Topic(STEM).stub})
    assert run.returncode == 0
    assert (report["score"], len(report["tests"])) == (0, len(Topic(STEM).marks))
    assert "not written yet" in {t["output"] for t in report["tests"]}


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"notes.txt": ""}, "there is no answers.py in what was handed in (notes.txt)"),
        ({}, "there is no answers.py in what was handed in (nothing)"),
        ({"answers.py": "", "old/answers.py": ""}, "there are 2 files that could be answers.py"),
        ({"all.zip": "none"}, "all.zip cannot be read: File is not a zip file"),
    ],
)
def test_an_upload_without_one_answers_file_is_told_so(quick, files, why):
    report, run = quick.grade(files)
    assert report["score"] == 0 and report["tests"] == []
    assert report["output"].startswith("Nothing was graded: ") and why in report["output"]
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (HANGS, "not done within"),
        (KILLS, " its process"),
        ("import os; os._exit(1)", "ended its process with exit code 1"),
        ("def walk(:", "answers.py cannot be imported: SyntaxError"),
    ],
    ids=["hangs", "kills", "exits", "does not parse"],
)
def test_an_answer_that_hangs_or_kills_loses_and_is_reported(quick, answers, why):
    report, run = quick.grade({"answers.py": answers})
    assert run.returncode == 0, run.stderr
    assert report["score"] == 0
    (test,) = report["tests"]
    assert why in test["output"]


def test_tests_that_are_uploaded_are_not_the_ones_that_count(quick, right):
    mine = {f"solutions/{STEM}/answers.py": "", f"solutions/{STEM}/test_{STEM}.py": CHEATS}
    report, _ = quick.grade(mine)
    assert (report["score"], sum(t["max_score"] for t in report["tests"])) == (0, 1)
    report, _ = quick.grade(mine | {f"solutions/{STEM}/answers.py": right})
    assert report["score"] == 1


def test_a_grader_that_fails_or_is_killed_leaves_a_report(quick, right, tmp_path):
    marker = quick.source / MARKER
    settings = marker.read_text()
    marker.write_text(settings.replace(f'"{STEM}"', '"nothing"', 1))
    report, run = quick.grade({"answers.py": right})
    marker.write_text(settings)
    assert report["score"] == 0
    assert report["output"] == "The grader failed (ValueError). Please tell your teacher."
    assert run.returncode == 1 and "stem is 'nothing'" in run.stderr
    (tmp_path / "python3").write_text("#!/bin/sh\nkill -9 $$\n")
    (tmp_path / "python3").chmod(0o755)
    report, run = quick.grade({"answers.py": right}, path=f"{tmp_path}:/usr/bin:/bin")
    assert run.returncode != 0
    assert report["score"] == 0 and "ended before it was done" in report["output"]


# --- the folder -------------------------------------------------------------------------------


def test_the_folder_has_the_library_the_tests_and_no_answers(root, tmp_path):
    made = {path.relative_to(tmp_path).as_posix() for path in make(tmp_path, STEM)}
    there = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert made == there
    ours = {f"solutions/{STEM}/{p.name}" for p in (root / "solutions" / STEM).glob("*.py")}
    ours -= {f"solutions/{STEM}/answers.py"}
    assert {n for n in made if not n.startswith("lib/weft/")} == ours | {
        "README.md", "setup.sh", "run_autograder", "requirements.txt", MARKER,
        "lib/pyproject.toml", f"exercises/{STEM}/answers.py",
    }  # fmt: skip
    library = {p.relative_to(root).as_posix() for p in (root / "lib/weft").rglob("*.py")}
    assert {n for n in made if n.startswith("lib/weft/")} == library
    stub = (tmp_path / "exercises" / STEM / "answers.py").read_bytes()
    assert stub == exercises(root / "solutions")[Path(STEM, "answers.py")]
    assert os.access(tmp_path / "setup.sh", os.X_OK)
    readme = (tmp_path / "README.md").read_text()
    assert "20 points" in readme and f"zip -r ../{STEM}.zip ." in readme


def test_its_requirements_are_the_projects(root, tmp_path):
    make(tmp_path, STEM)
    lines = (tmp_path / "requirements.txt").read_text().splitlines()
    assert lines == requirements(root)
    project = (root / "lib/pyproject.toml").read_text()
    for line in lines:
        assert f'"{line}"' in project or line in (root / "requirements.txt").read_text(), line
    names = {line.split(">")[0] for line in lines}
    assert {"numpy", "cloudpickle", "xxhash", "pytest", "hypothesis", "torch", "triton"} <= names


@pytest.mark.parametrize("script", ["setup.sh", "run_autograder"])
def test_its_scripts_parse(tmp_path, script):
    make(tmp_path, STEM)
    assert subprocess.run(["sh", "-n", str(tmp_path / script)]).returncode == 0


FAKE = """\
#!/bin/sh
# An interpreter that fits, makes a copy of itself for an environment, and notes what is installed.
case "$1 $2" in
    "-m venv") mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    "-m pip") echo "$*" >>log ;;
esac
"""
APT = '#!/bin/sh\necho "apt-get $*" >>log\ncase $* in *3.11*) cp {good} {bin}/python3.11 ;; esac\n'


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("index", ["", "somewhere"])
def test_the_setup_installs_the_list_and_torch_from_where_it_is_told(tmp_path, old, index):
    folder, bin = tmp_path / "source", tmp_path / "bin"
    make(folder, STEM)
    bin.mkdir()
    for tool in ("sh", "dirname", "mkdir", "cp", "grep"):
        (bin / tool).symlink_to(shutil.which(tool))
    texts = {"good": FAKE, "apt-get": APT.format(good=tmp_path / "good", bin=bin)}
    texts["python3"] = "#!/bin/sh\nexit 1\n" if old else FAKE
    for name, text in texts.items():
        path = tmp_path / name if name == "good" else bin / name
        path.write_text(text)
        path.chmod(0o755)
    setup = folder / "setup.sh"
    setup.write_text(setup.read_text().replace("torch_index=''", f"torch_index='{index}'"))
    run = subprocess.run([setup], env={"PATH": str(bin)}, cwd="/", capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    log = (folder / "log").read_text().splitlines()
    pip = "-m pip install --no-cache-dir --disable-pip-version-check"
    asked = ["update", "install -y python3-venv", "install -y python3.11 python3.11-venv"]
    assert log == [
        *(f"apt-get {words}" for words in asked if old),
        *([f"{pip} --index-url somewhere -r venv/torch.txt"] if index else []),
        f"{pip} -r requirements.txt",
    ]
    if index:
        (line,) = (folder / "venv/torch.txt").read_text().splitlines()
        assert line.startswith("torch>=")


def test_a_folder_is_renewed_and_what_is_not_ours_stays(tmp_path):
    make(tmp_path, STEM, seed=SEED)
    (tmp_path / "setup.sh").write_text("changed")
    (tmp_path / "mine.txt").write_text("mine")
    make(tmp_path, "pipeline")
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert "changed" not in (tmp_path / "setup.sh").read_text()
    assert not list((tmp_path / "solutions" / STEM).iterdir())
    assert (tmp_path / "solutions/pipeline/ranks.py").is_file()
    assert json.loads((tmp_path / MARKER).read_text())["seed"] == SEED
    make(tmp_path, "pipeline", seed=SEED + 1)
    assert json.loads((tmp_path / MARKER).read_text())["seed"] == SEED + 1


def test_a_marker_that_names_files_elsewhere_removes_none_of_them(tmp_path):
    (tmp_path / "precious").write_text("mine")
    folder = tmp_path / "folder"
    make(folder, STEM)
    marker = json.loads((folder / MARKER).read_text())
    marker["files"] += ["../precious", str(tmp_path / "precious")]
    (folder / MARKER).write_text(json.dumps(marker))
    make(folder, STEM)
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.write_text("[" * 10**6), "autograder.json is damaged: name a new"),
        (lambda path: path.write_text("[]"), "autograder.json is damaged: name a new folder"),
        (lambda path: path.write_text('{"seed": 1, "files": [1]}'), "is damaged: name a new"),
        (lambda path: path.write_text('{"seed": 1, "files": []}'), "where somebody else's README"),
        (lambda path: os.mkfifo(emptied(path.with_name("setup.sh"))), "no file but a pipe"),
    ],
)
def test_what_somebody_has_changed_is_named_and_stays(tmp_path, harm, said):
    make(tmp_path, STEM, seed=SEED)
    harm(tmp_path / MARKER)
    before = there(tmp_path)
    with pytest.raises((ValueError, OSError), match=said):
        make(tmp_path, STEM)
    assert there(tmp_path) == before


def there(folder):
    """What lies in a folder, and when it was written."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}


def emptied(path):
    path.unlink()
    return path


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--autograder", "full"], "autograder is 'full', must be a new folder, an empty one, or"),
        (["--autograder", "full/file"], "autograder is 'full/file', must be a new folder"),
        (["--autograder", "new", "--only", "nothing"], "only is 'nothing', must be part of a"),
        (["--autograder", "new", "--answers", "."], "--autograder and --answers do not go"),
        (["--autograder", "new", "--class", "."], "--autograder and --class do not go together"),
        (["--autograder", "new", "--jobs", "2"], "--autograder and --jobs do not go together"),
    ],
)
def test_wrong_usage_is_a_line_and_changes_nothing(
    tmp_path, monkeypatch, capsys, arguments, complaint
):
    monkeypatch.chdir(tmp_path)
    Path("full").mkdir()
    Path("full/file").write_text("mine")
    assert cli.main(["grade", STEM, *arguments]) == 2
    shown = capsys.readouterr()
    assert complaint in shown.err and shown.err.count("\n") == 1
    assert [p.as_posix() for p in Path().rglob("*")] == ["full", "full/file"]


def test_the_command_makes_it_and_says_what_comes_next(tmp_path, capsys):
    assert cli.main(["grade", STEM, "--autograder", str(tmp_path / "a b")]) == 0
    said = capsys.readouterr().out
    assert f"cd '{tmp_path}/a b' && zip -r ../{STEM}.zip ." in said
    assert (tmp_path / "a b/run_autograder").is_file()
