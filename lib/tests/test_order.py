"""The order in which the workers of `make test` take the files: the longest first."""

import importlib.util
from types import SimpleNamespace

import pytest


@pytest.fixture
def conftest(root):
    spec = importlib.util.spec_from_file_location("order", root / "lib/tests/conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Cache(dict):
    """pytest's cache, as far as it is used."""

    set = dict.__setitem__


def config(cache, plugins):
    return SimpleNamespace(cache=cache, pluginmanager=SimpleNamespace(hasplugin=plugins.count))


def order(conftest, config, *nodeids):
    items = [SimpleNamespace(nodeid=x, get_closest_marker=lambda _: None) for x in nodeids]
    conftest.pytest_collection_modifyitems(config, items)
    return [item.nodeid for item in items]


def test_longest_first_as_they_last_were_and_new_files_before_them(conftest):
    first, last = config(Cache(), ["dsession", "cacheprovider"]), config(Cache(), [])
    asked = ["a.py::x", "a.py::y", "lab.ipynb::Cell 0", "lab.ipynb::Cell 1", "new.py::T::z"]
    for nodeid, duration in zip(asked[:4], (1.5, 0.1, 1.0, 1.0), strict=True):
        conftest.pytest_runtest_logreport(SimpleNamespace(nodeid=nodeid, duration=duration))
    for each in (first, last):  # without workers the times are those of what was asked for
        conftest.pytest_sessionfinish(SimpleNamespace(config=each))
    assert first.cache == {conftest.SECONDS: {"a.py": 1.6, "lab.ipynb": 2.0}} and not last.cache
    assert order(conftest, first, *asked) == [asked[4], *asked[2:4], *asked[:2]]
    assert order(conftest, last, *asked) == asked


def test_each_worker_begins_with_another_file(conftest, root):
    def asked(number):
        place = SimpleNamespace(dir=root)
        worker = {"workerid": f"gw{number}", "workercount": 2}
        given = ["a.ipynb", "lib/tests", "lib/weft"]
        config = SimpleNamespace(args=given, invocation_params=place, workerinput=worker)
        conftest.pytest_configure(config)
        return config.args

    first, second = asked(0), asked(1)
    assert first[-2:] == second[-2:] == ["a.ipynb", "lib/weft"]
    assert sorted(first) == sorted(second) and first[0] != second[0]
    files = [str(path) for path in sorted((root / "lib/tests").glob("test_*.py"))]
    assert first[:-2] == files
