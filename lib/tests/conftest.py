"""What every test may use: the root of the tree, and a plain word about a missing GPU.

The files that took longest when they last ran come first, so that at the end no worker is left
with a long one while the others have nothing to do.
"""

import gc
import os
from collections import Counter
from functools import cache
from math import inf
from pathlib import Path

import pytest

# Workers share two cores, and threads that wait for each other would turn. Here, before any
# test loads torch; what a test starts inherits it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Workers, and every Python that a test starts, do without imports that would be for nothing.
LIGHT = str(Path(__file__).parent / "support/light")
before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
os.environ["PYTHONPATH"] = os.pathsep.join([LIGHT, *(p for p in before if p and p != LIGHT)])

try:
    from hypothesis import settings
except ImportError:  # the tests that need it will say so themselves
    pass
else:
    settings.register_profile("weft", deadline=None, print_blob=True)
    settings.load_profile("weft")


pytest.register_assert_rewrite("graded", "pictures")


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder that holds Makefile, book, lib and the rest."""
    return Path(__file__).resolve().parents[2]


@cache
def cuda() -> bool:
    """Whether torch is there and sees a CUDA device."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


SECONDS = "weft/seconds"  # in pytest's cache: how long each file took when it last ran
LONG = "_exercises.py", "_browser.py"  # the longest, where no file has run
took: Counter[str] = Counter()


def known(config: pytest.Config) -> dict[str, float]:
    """The seconds that files took, by path; none where pytest runs without its cache."""
    return config.cache.get(SECONDS, {}) if config.pluginmanager.hasplugin("cacheprovider") else {}


def file_of(nodeid: str) -> str:
    """The path of the file that a test is in, as workers are given files by it."""
    return nodeid.partition("::")[0]


def pytest_configure(config: pytest.Config) -> None:
    """Have each worker begin with another file when it imports all of them.

    In a fresh checkout pytest rewrites each file's assertions, which takes longer than to import
    it. What one worker has rewritten the others read.
    """
    here = Path(__file__).parent
    others = [path for path in config.args if Path(config.invocation_params.dir, path) != here]
    if hasattr(config, "workerinput") and len(others) < len(config.args):
        files = sorted(map(str, here.glob("test_*.py")))
        number = int(config.workerinput["workerid"].removeprefix("gw"))
        turn = number * len(files) // config.workerinput["workercount"]
        config.args = [*files[turn:], *files[:turn], *others]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, saying so, what is marked gpu where there is none, and put the longest files first.

    Loads torch for no other test. A file of which no time is known comes before the others.
    """
    for item in items:
        if item.get_closest_marker("gpu") and not cuda():
            item.add_marker(pytest.mark.skip(reason="needs a GPU: torch sees no CUDA device"))
    seconds, turned = known(config), hasattr(config, "workerinput")

    def expected(file: str) -> float:
        return seconds.get(file, inf if file.endswith(LONG) else 1e6)

    def place(item: pytest.Item) -> tuple[float, str]:
        file = file_of(item.nodeid)
        return -expected(file), file if turned else ""

    items.sort(key=place)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave out of every collection of garbage what is there by now: it stays, and is much."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of a test, its fixtures' included, to that of its file."""
    took[file_of(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remember the times where workers shared the files, which all their reports come to."""
    plugins = session.config.pluginmanager
    if plugins.hasplugin("dsession") and plugins.hasplugin("cacheprovider"):
        session.config.cache.set(SECONDS, known(session.config) | took)
