"""The package as it would be published, and installed where there is no checkout."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def installed(root, tmp_path_factory) -> Path:
    """A folder with what the wheel holds, as pip would lay it out, and nothing of the checkout."""
    place = tmp_path_factory.mktemp("package")
    junk = shutil.ignore_patterns("tests", "__pycache__", "*.egg-info", "build", ".*")
    shutil.copytree(root / "lib", place / "lib", ignore=junk)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(place)],
        cwd=place / "lib", capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place / "site")
    return place / "site"


@pytest.fixture(scope="module")
def metadata(installed):
    (about,) = installed.glob("*.dist-info/METADATA")
    return message_from_string(about.read_text(encoding="utf-8"))


def weft(installed: Path, *arguments) -> subprocess.CompletedProcess:
    """Run the installed command in a folder with nothing else in it."""
    empty = installed.with_name("empty")
    empty.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "weft", *arguments], cwd=empty, timeout=300,
        env=os.environ | {"PYTHONPATH": str(installed)}, capture_output=True, text=True,
    )  # fmt: skip


def test_the_metadata_is_that_of_a_package_to_be_published(metadata, root):
    config = (root / "_config.yml").read_text(encoding="utf-8")
    (author,) = re.findall("^author: (.*)$", config, re.MULTILINE)
    assert (metadata["Name"], metadata["Author"]) == ("warp-and-weft", author)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("Project-URL") is None  # a fork's is not ours
    assert metadata.get_payload() == (root / "lib/README.md").read_text(encoding="utf-8")
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    versions = {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)}
    assert versions < set(metadata.get_all("Classifier"))
    assert {"torch", "grade", "dev"} == set(metadata.get_all("Provides-Extra"))


def test_the_extra_is_what_a_checkout_installs(root):
    project = tomllib.loads((root / "lib/pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if re.match("torch|triton", line)]
    extra = [line.replace("'", '"') for line in project["optional-dependencies"]["torch"]]
    assert extra == wanted


def test_the_wheel_holds_the_library_the_licence_and_no_tests(installed):
    tops = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert tops == {"weft"}
    assert len(list(installed.glob("*.dist-info/licenses/LICENSE"))) == 1
    assert (installed / "weft/kernels/hopper").is_dir()


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--version"], "weft 0.1.0"),
        (["draw", "gpipe", "2", "2"], "makespan"),
        (["plan", "pipeline", "2", "4", "--memory", "2"], "one_f_one_b"),
        (["memory", "llama2-7b", "--d", "8"], "optimizer"),
        (["roofline", "matmul:512,512,512"], "FLOP"),
        (["run", "zero", "--help"], "--stage"),
        (["bench", "--list"], "attention"),
    ],
)
def test_what_needs_no_checkout_works_without_one(installed, arguments, shown):
    if arguments[0] == "bench":
        pytest.importorskip("torch")
    done = weft(installed, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert shown in done.stdout


def test_a_training_finds_something_to_learn(installed):
    pytest.importorskip("torch")
    small = ["--layers=1", "--width=8", "--heads=1", "--seq=8", "--steps=2"]
    done = weft(installed, "run", "offload", "--in-memory", *small)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("nats per byte") == 2


@pytest.mark.parametrize("more", [[], ["--class", "."], ["--autograder", "made"]])
def test_what_needs_the_checkout_says_so_in_a_line(installed, more):
    pytest.importorskip("torch")
    done = weft(installed, "grade", "zero", *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "with a checkout of the book" in done.stderr
