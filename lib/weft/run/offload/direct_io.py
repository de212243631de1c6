"""Direct I/O: from the disk and to it, past the page cache.

So a read comes from the disk, and memory stays what the budget says. Where a file system has none,
plain I/O is told to keep nothing in the cache.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

DIRECT = getattr(os, "O_DIRECT", 0)


class Rate:
    """So many bytes per second, whoever asks: a stand-in for a slower disk, or none."""

    def __init__(self, rate: float | None):
        self.rate, self._free, self._lock = rate, 0.0, Lock()

    @contextmanager
    def takes(self, nbytes: int) -> Iterator[None]:
        """What is done in here takes as long as so many bytes do, after those before them."""
        if self.rate is None:
            yield
            return
        with self._lock:
            self._free = max(self._free, time.perf_counter()) + nbytes / self.rate
            end = self._free
        yield
        time.sleep(max(0.0, end - time.perf_counter()))


def direct(fd: int, on: bool = True) -> bool:
    """Switch a file to direct I/O, or back; whether it is direct now."""
    if hasattr(fcntl, "F_NOCACHE"):  # macOS
        fcntl.fcntl(fd, fcntl.F_NOCACHE, int(on))
    if not DIRECT:
        return False
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    with suppress(OSError):  # EINVAL: this file system has none
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | DIRECT if on else flags & ~DIRECT)
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & DIRECT)


def reserve(fd: int, length: int) -> None:
    """Have the disk set room aside, so that it is full now or not at all, and writes are quick."""
    if length and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, length)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV):
                raise


def push(fd: int, data: memoryview, offset: int) -> None:
    """Write all of a buffer at an offset; whole pages, where it is direct."""
    done = 0
    while done < len(data):
        try:
            done += os.pwritev(fd, [data[done:]], offset + done)
        except OSError as error:
            if error.errno != errno.EINVAL or not plain(fd):
                raise


def pull(fd: int, data: memoryview, offset: int) -> int:
    """Fill a buffer from an offset; how many bytes there were before the file's end."""
    done = 0
    while done < len(data):
        try:
            count = os.preadv(fd, [data[done:]], offset + done)
        except OSError as error:
            if error.errno != errno.EINVAL or not plain(fd):
                raise
            continue
        done += count
        if not count or done % 512:  # the end, or what is before it
            break
    return done


def plain(fd: int) -> bool:
    """Switch direct I/O off, as a file system may ask for in the middle; False if it was off."""
    was = bool(DIRECT and fcntl.fcntl(fd, fcntl.F_GETFL) & DIRECT)
    direct(fd, False)
    return was


def forget(fd: int) -> None:
    """Have nothing of a file in the page cache, where that can be asked for."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
