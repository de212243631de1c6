"""What every test may use: the root of the tree, and a plain word about a missing GPU."""

import os
from functools import cache
from pathlib import Path

import pytest

# Workers share two cores, and threads that wait for each other would turn. Here, before any
# test loads torch; what a test starts inherits it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, saying so, what is marked gpu where there is none. Loads torch for no other test."""
    for item in items:
        if item.get_closest_marker("gpu") and not cuda():
            item.add_marker(pytest.mark.skip(reason="needs a GPU: torch sees no CUDA device"))
