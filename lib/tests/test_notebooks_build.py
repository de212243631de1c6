"""The notebook maker, on a tiny notebook: what it writes, what it notices, what it keeps."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

pytest.importorskip("nbclient")

SOURCE = """\
---
kernelspec:
  name: python3
---
# A tiny lab

```{code-cell}
print("one", flush=True)
print("two", flush=True)
6 * 7
```

```{code-cell}
:tags: [nbval-ignore-output]
import time
time.monotonic_ns()
```
"""


@pytest.fixture(scope="module")
def build(root: Path) -> ModuleType:
    """notebooks/build.py as a module."""
    spec = importlib.util.spec_from_file_location("notebook_maker", root / "notebooks/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of notebooks with one source and nothing made yet."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tiny.md").write_text(SOURCE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def made(build: ModuleType, folder: Path) -> Path:
    """The same with the notebook as it would be stored, its outputs written without a kernel."""
    notebook = build.load(folder / "src" / "tiny.md")
    for number, cell in enumerate(c for c in notebook.cells if c.cell_type == "code"):
        cell.execution_count = number + 1
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"stored {number}\n")]
    nbformat.write(notebook, folder / "tiny.ipynb")
    return folder


def outputs(folder: Path) -> list:
    stored = nbformat.read(folder / "tiny.ipynb", as_version=4)
    return [cell.outputs for cell in stored.cells if cell.cell_type == "code"]


def test_made_again_is_the_same_file(build, folder):
    assert build.main([], folder) == 0
    first = (folder / "tiny.ipynb").read_bytes()
    stream, result = outputs(folder)[0]
    assert stream.text == "one\ntwo\n"  # one stream, however often it was flushed
    assert result.data == {"text/plain": "42"}
    assert b"timestamp" not in first and b'"version"' not in first
    assert build.main(["--force"], folder) == 0
    assert (folder / "tiny.ipynb").read_bytes() == first
    assert build.main(["--fresh"], folder) == 0
    assert outputs(folder)[1] != nbformat.reads(first.decode(), 4).cells[2].outputs


def test_an_unchanged_notebook_is_not_run(build, made, monkeypatch):
    monkeypatch.setattr(build, "make", lambda *a, **k: pytest.fail("ran an unchanged notebook"))
    assert build.main(["--check"], made) == 0
    assert build.main([], made) == 0
    assert outputs(made)[0][0].text == "stored 0\n"


def test_only_measured_outputs_are_kept(build, made):
    assert build.main(["--force"], made) == 0
    strict, free = outputs(made)
    assert strict[0].text == "one\ntwo\n"
    assert free[0].text == "stored 1\n"


def test_a_changed_source_measures_anew(build, made):
    source = made / "src" / "tiny.md"
    source.write_text(SOURCE.replace("6 * 7", "6 * 8"), encoding="utf-8")
    assert build.main([], made) == 0
    strict, free = outputs(made)
    assert strict[1].data == {"text/plain": "48"}
    assert free[0].output_type == "execute_result"


def test_check_names_what_is_stale(build, made, capsys):
    def complaint() -> str:
        assert build.main(["--check"], made) == 1
        return capsys.readouterr().err

    notebook = nbformat.read(made / "tiny.ipynb", as_version=4)
    notebook.cells[1].execution_count = None
    nbformat.write(notebook, made / "tiny.ipynb")
    assert "tiny.ipynb cell c001 has not been run" in complaint()
    (made / "src" / "tiny.md").write_text(SOURCE + "\nOne word more.\n", encoding="utf-8")
    assert "tiny.ipynb differs from tiny.md" in complaint()
    (made / "tiny.ipynb").rename(made / "stray.ipynb")
    assert "tiny.ipynb has not been made" in complaint()
    assert "stray.ipynb has no source" in complaint()


def test_a_cell_that_raises_writes_nothing(build, folder, capsys):
    source = folder / "src" / "tiny.md"
    source.write_text(SOURCE.replace("6 * 7", "1 / 0"), encoding="utf-8")
    assert build.main([], folder) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert not (folder / "tiny.ipynb").exists()


def test_a_cell_that_does_not_run_fails_the_run(build, root, made):
    """One notebook passes and one skips a cell, which pytest alone would call a success."""
    pytest.importorskip("nbval")
    for name in ("conftest.py", "sanitize.cfg"):
        (made / name).write_bytes((root / "notebooks" / name).read_bytes())
    assert build.main(["--force"], made) == 0
    whole = (made / "tiny.ipynb").read_text(encoding="utf-8")
    skips = whole.replace('"6 * 7"', '"# NBVAL_SKIP\\n",\n    "6 * 7"')
    (made / "skips.ipynb").write_text(skips, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "."]
    command += ["-c", str(root / "lib/pyproject.toml"), "--rootdir", "."]
    run = subprocess.run(command, cwd=made, capture_output=True, text=True, timeout=120)
    assert "3 passed, 1 skipped" in run.stdout
    assert "skips.ipynb: 1 of 2 cells ran" in run.stdout
    assert "tiny.ipynb:" not in run.stdout
    assert run.returncode == 1
