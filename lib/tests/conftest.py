"""What every test may use: the root of the tree, and a plain word about a missing GPU."""

import os
from functools import cache
from pathlib import Path

import pytest

# Two workers share two cores, and threads that wait for each other would turn. Here, before any
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

# The files that take longest, the longest first. Two workers take whole files from one list, so
# what is taken last should be short; all files that are not named here are.
LONGEST = (
    "test_book_browser.py",
    "test_pipeline_run.py",
    "test_world_run.py",
    "test_world_readme.py",
    "test_zero_exercises.py",
    "test_pipeline_exercises.py",
    "test_offload_exercises.py",
    "pipeline.ipynb",
    "test_grade_check.py",
    "test_hopper_exercises.py",
    "test_attention_exercises.py",
    "test_decode_exercises.py",
    "test_roofline_exercises.py",
    "test_collectives_exercises.py",
    "test_precision_exercises.py",
    "precision.ipynb",
    "test_attention_code.py",
    "test_zero_checkpoint_train.py",
    "test_zero_run.py",
    "test_compile.py",
    "roofline.ipynb",
    "test_decode_kernels.py",
    "test_attention_kernels.py",
    "test_hopper_kernels.py",
    "attention.ipynb",
    "zero.ipynb",
    "test_collectives_run.py",
    "decode.ipynb",
    "test_pipeline_search.py",
    "test_book_build.py",
    "test_attention_ref.py",
    "hopper.ipynb",
    "test_zero_checkpoint.py",
    "test_precision_kernels.py",
    "test_zero_checkpoint_killed.py",
    "test_meter_traffic.py",
    "test_book_ext.py",
    "test_pipeline_draw.py",
    "test_offload_run_adam.py",
    "collectives.ipynb",
    "test_hopper_code.py",
    "offload.ipynb",
    "test_notebooks_build.py",
    "test_world_nodes.py",
    "test_zero_run_alive.py",
    "test_hopper_bench.py",
    "test_collectives_bench.py",
)


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
    """Put the longest files first, and skip, saying so, what is marked gpu where there is none.

    Loads torch for no other test.
    """
    rank = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))
    for item in items:
        if item.get_closest_marker("gpu") and not cuda():
            item.add_marker(pytest.mark.skip(reason="needs a GPU: torch sees no CUDA device"))
