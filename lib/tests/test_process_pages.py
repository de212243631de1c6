"""Memory of large pages holds what it held, and is what a fork shares."""

import os
import subprocess
import sys

import pytest

from weft.process import pages

HELD = """
import os, sys
from weft.process.pages import collapse
held = [str(i) * 50 for i in range(200_000)]

def huge():
    with open("/proc/self/smaps_rollup") as sums:
        return next(int(line.split()[1]) for line in sums if line.startswith("AnonHuge"))

print(huge())
collapse()
print(huge(), flush=True)
child = os.fork()
assert held == [str(i) * 50 for i in range(200_000)]
os._exit(0 if child == 0 else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_memory_is_in_large_pages_and_as_it_was():
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    before, after = map(int, done.stdout.split())
    since = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 1)
    assert after - before > (10 << 10 if since else -1)  # KiB


def test_where_there_are_none_nothing_happens(monkeypatch):
    monkeypatch.setattr(pages.sys, "platform", "darwin")
    monkeypatch.setattr(pages.ctypes, "CDLL", lambda _: pytest.fail("asked for all the same"))
    pages.collapse()
