"""`weft doctor`: each probe says what is there, and what it would take where it is not."""

import builtins
import shutil
import subprocess

import pytest

from weft import cli, doctor


def test_it_finds_this_interpreter():
    finding = doctor.python()
    assert finding.there and finding.needed and finding.found.startswith("3.")


def test_a_package_that_is_missing_says_what_it_is_for():
    finding = doctor.package("no-such-package", "nothing")
    assert not finding.there
    assert finding.takes == "make setup, or pip install no-such-package: nothing"


def test_a_package_that_is_there_has_its_version():
    assert doctor.package("pytest", "") == doctor.Finding("pytest", True, pytest.__version__)


@pytest.fixture
def no_torch(monkeypatch):
    """An interpreter in which torch cannot be imported."""
    real = builtins.__import__

    def refuse(name, *rest):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)


@pytest.mark.parametrize("probe", [doctor.gpu, doctor.nccl])
def test_without_torch_it_says_so(no_torch, probe):
    finding = probe()
    assert (finding.there, finding.takes) == (False, "install torch first")


def test_a_machine_without_gpu_is_told_what_it_would_take(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    finding = doctor.gpu()
    assert not finding.there
    assert "NVIDIA GPU" in finding.takes


@pytest.mark.gpu
def test_a_gpu_is_named():
    finding = doctor.gpu()
    assert finding.there and finding.found


def test_two_ranks_answer():
    pytest.importorskip("torch")
    assert doctor.ranks().there


def test_a_browser_is_found_or_named(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    assert "apt-get install chromium" in doctor.browser().takes
    (tmp_path / "chromium-1234").mkdir()
    assert doctor.browser().found == "playwright's chromium-1234"


def test_refused_namespaces_give_the_reason(monkeypatch):
    monkeypatch.setattr(doctor.sys, "platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda name: name)
    refused = subprocess.CompletedProcess([], 1, "", "unshare: Operation not permitted\n")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: refused)
    finding = doctor.namespaces()
    assert finding.found == "unshare: Operation not permitted"
    assert "root" in finding.takes


def test_the_command_prints_a_line_for_each_and_what_is_missing(monkeypatch, capsys):
    findings = [
        doctor.Finding("Python", True, "3.12.1", needed=True),
        doctor.Finding("GPU", False, "none", "an NVIDIA GPU"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out == (
        "    what    found\nok  Python  3.12.1\n--  GPU     none\nGPU: an NVIDIA GPU\n"
    )
    findings[0] = doctor.Finding("Python", False, "3.9", "install Python 3.11", needed=True)
    assert cli.main(["doctor"]) == 1


def test_every_missing_thing_says_what_it_would_take():
    light = [p for p in doctor.PROBES if p is not doctor.ranks]
    for finding in (probe() for probe in light):
        assert finding.there or finding.takes, finding
        assert "\n" not in finding.found + finding.takes
