"""Memory in pages of 2 MiB, so that a process that is large can be forked in a moment.

A fork copies an entry for each page that its parent has written to, and the child's end clears it
again: where torch is loaded these are 50,000 of 4 KiB, which takes longer than what most children
are for. A page of 2 MiB has one entry, until a child writes to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

SIZE = 2 << 20
COLLAPSE = 25  # madvise(2), since Linux 6.1


def collapse() -> None:
    """Have this process's own memory in pages of 2 MiB; as it is where the system does not.

    It takes as long as some thirty forks, since everything is copied once.
    """
    if sys.platform != "linux":
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    with contextlib.suppress(OSError):
        for first, end in list(_private()):
            start = -(-first // SIZE) * SIZE
            if start + SIZE <= end:
                madvise(start, (end - start) // SIZE * SIZE, COLLAPSE)


def _private() -> Iterator[tuple[int, int]]:
    """Where memory lies that is no file's and nobody else's."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            addresses, rights, _, _, _, *name = line.split(maxsplit=5)
            if rights == "rw-p" and (not name or name[0].strip() == "[heap]"):
                first, end = addresses.split("-")
                yield int(first, 16), int(end, 16)
