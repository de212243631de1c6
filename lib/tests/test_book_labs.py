"""Labs as a learner meets them: in JupyterLab, which does not trust them, and in a browser."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import browser
import pytest
from book_site import site  # noqa: F401

pytest.importorskip("jupyterlab")
import nbformat

SECONDS = 240  # for whatever a machine that does other things too has to get ready
WIDE = 60  # pixels at least, of a picture that somebody can look at
# The pictures of the notebook in front: how wide each is on the screen, and what its output says
# in letters.
PICTURES = """() => {
  const outputs = jupyterapp.shell.currentWidget.node.querySelectorAll(".jp-OutputArea-output");
  return [...outputs].flatMap((output) =>
    [...output.querySelectorAll("img, svg.weft-figure")].map((picture) => ({
      kind: picture.tagName.toLowerCase(),
      ready: picture.complete !== false && picture.naturalWidth !== 0,
      wide: picture.getBoundingClientRect().width,
      letters: picture.tagName === "IMG" ? output.innerText.trim() : "",
    })));
}"""
SHOWN = "(count) => (" + PICTURES + ")().filter((one) => one.ready && one.wide).length >= count"
OPEN = """async (path) => {
  const opened = await jupyterapp.commands.execute("docmanager:open", { path });
  await opened.context.ready;
  await opened.revealed;
}"""
# Every cell is drawn at once, and not when it comes near the screen.
SETTINGS = {"@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"}}
IDLE = """() =>
  jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"""
RUN_ALL = "() => jupyterapp.commands.execute('notebook:run-all-cells')"


@contextmanager
def jupyterlab(folder: Path, home: Path):
    """JupyterLab on a folder, with nothing of this machine's settings or trust; its address."""
    places = {f"JUPYTER_{kind}_DIR": str(home / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    environment = os.environ | places | {"HOME": str(home), "IPYTHONDIR": str(home / "ipython")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--expose-app-in-browser", "--IdentityProvider.token=", "--ServerApp.port=0"]
    command += [f"--ServerApp.root_dir={folder}", "--LabApp.news_url=None"]
    for name, settings in SETTINGS.items():
        file = home / "CONFIG/lab/user-settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(settings))
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + SECONDS
        while not (told := list((home / "RUNTIME").glob("jpserver-*.json"))):
            assert server.poll() is None and time.monotonic() < until, (home / "log").read_text()
            time.sleep(0.1)
        yield json.loads(told[0].read_text())["url"]
    finally:
        server.terminate()
        server.wait(timeout=SECONDS)


def labs(root: Path) -> dict[str, nbformat.NotebookNode]:
    """The labs that hold pictures, by their stem."""
    read = {path.stem: nbformat.read(path, 4) for path in (root / "notebooks").glob("*.ipynb")}
    return {stem: lab for stem, lab in sorted(read.items()) if pictures(lab)}


def pictures(lab: nbformat.NotebookNode) -> int:
    """How many pictures are stored in a notebook."""
    return json.dumps(lab).count("<img class='weft-image'")


@pytest.fixture(scope="module")
def place(root, tmp_path_factory):
    """A folder with the labs as they are, and one that is cut after its first picture."""
    folder = tmp_path_factory.mktemp("labs")
    for stem, lab in labs(root).items():
        nbformat.write(lab, folder / f"{stem}.ipynb")
    short = labs(root)["pipeline"]
    seen = [pictures(nbformat.from_dict({"cells": [cell]})) for cell in short.cells]
    short.cells = short.cells[: seen.index(1) + 1]
    nbformat.write(short, folder / "short.ipynb")
    return folder


@pytest.fixture(scope="module")
def address(place, tmp_path_factory):
    with jupyterlab(place, tmp_path_factory.mktemp("home")) as address:
        yield address


@pytest.fixture(scope="module")
def chromium():
    if browser.find() is None:
        if os.environ.get("CI"):
            pytest.fail(browser.missing())
        pytest.skip(browser.missing())
    with browser.launched() as running:
        yield running


@pytest.fixture
def lab(chromium, address):
    """JupyterLab on the screen, without a notebook."""
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(1000 * SECONDS)
    page.goto(f"{address}lab?reset")
    page.wait_for_function("() => window.jupyterapp")
    page.evaluate("() => jupyterapp.restored.then(() => null)")
    yield page
    page.close()


def shown(lab, name: str, count: int) -> list[dict]:
    """What a notebook shows when it is opened, once so many pictures are there."""
    lab.evaluate(OPEN, f"{name}.ipynb")
    lab.wait_for_function(SHOWN, arg=count)
    return lab.evaluate(PICTURES)


def test_pictures_show_before_and_after_all_cells_are_run(lab):
    (before,) = shown(lab, "short", 1)
    assert before["kind"] == "img" and before["wide"] > WIDE and before["letters"] == ""
    lab.wait_for_function(IDLE)
    lab.evaluate(RUN_ALL)
    lab.wait_for_function(f"() => ({PICTURES})().some((picture) => picture.kind === 'svg')")
    (after,) = lab.evaluate(PICTURES)
    assert after["wide"] == pytest.approx(before["wide"], abs=2)


def test_the_books_pages_have_the_pictures_as_their_own(site, root):  # noqa: F811
    for stem, notebook in labs(root).items():
        page = (site / f"notebooks/{stem}.html").read_text(encoding="utf-8")
        assert page.count("class='weft-figure'") == pictures(notebook), stem
        assert "weft-image" not in page and "Finds the library" not in page, stem


def test_no_lab_shows_letters_in_the_place_of_a_picture(lab, root):
    for stem, notebook in labs(root).items():
        for picture in shown(lab, stem, pictures(notebook)):
            assert picture["kind"] == "img", stem
            assert picture["wide"] > WIDE and picture["letters"] == "", stem
        lab.evaluate("() => jupyterapp.shell.currentWidget.close()")
