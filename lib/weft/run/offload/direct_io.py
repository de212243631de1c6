"""Direct I/O in one folder that is held open: files by descriptor, links never followed.

Whatever happens to the path of the folder while it is open, its files are made, opened and
removed in the folder that was opened. Direct I/O goes past the page cache, so that a read comes
from the disk, and memory stays what the budget says. Where a file system has none, plain I/O is
told to keep nothing in the cache.
"""

import errno
import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG, S_IWOTH
from threading import Lock

from weft.run.offload.faults import damaged, fault

DIRECT = getattr(os, "O_DIRECT", 0)
SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """A folder for one store at a time, made for the user alone if it is not there."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        with suppress(FileExistsError):
            os.makedirs(self.path, 0o700)
        try:
            self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | SAFELY)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                said = f"folder is {str(self.path)!r}, must be a folder, and no link to one"
                raise ValueError(said) from None
            raise
        self._close = weakref.finalize(self, _let_go, self.fd)  # also if nobody closes it
        try:
            if os.fstat(self.fd).st_mode & S_IWOTH:
                said = "may be written by everybody, must be one that others cannot change"
                raise ValueError(f"folder is {str(self.path)!r}, which {said}")
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._close()
            said = "which another store has open, must be one that no other uses"
            raise ValueError(f"folder is {str(self.path)!r}, {said}") from None
        except BaseException:
            self._close()
            raise

    def create(self, name: str) -> int:
        """Open a new file for the user alone; FileExistsError if there is one."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFELY
        return os.open(name, flags, 0o600, dir_fd=self.fd)

    def open(self, name: str) -> int:
        """A descriptor for reading; of a file, since a pipe that was planted could make us wait."""
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | SAFELY, dir_fd=self.fd)
        if not S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise damaged(self.path / name, "it is no file, and nothing was read or changed")
        return fd

    def remove(self, name: str) -> None:
        """Remove a file, if it is there and may be removed; a link itself, not what it is to."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self.fd)

    def names(self) -> list[str]:
        """What is in the folder."""
        return os.listdir(self.fd)

    def load(self, name: str) -> bytes | None:
        """A small file's bytes, None if there is no such file."""
        try:
            fd = self.open(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise fault(error, self.path / name, "reading", "nothing was changed") from error
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def replace(self, name: str, data: bytes) -> None:
        """Make a small file hold other bytes: it is whole, the old or the new.

        Which of the two is there after a power cut, `sync` decides.
        """
        fresh = name + ".new"
        self.remove(fresh)
        self.sync()  # what the new bytes speak of is there before they are
        fd = self.create(fresh)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            durable(file.fileno())
        os.rename(fresh, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def sync(self) -> None:
        """Names made and removed so far will be there after a power cut."""
        os.fsync(self.fd)

    def close(self) -> None:
        """Let another store have it."""
        self._close()


def _let_go(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)  # a process that was forked may still have it open
    os.close(fd)


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
    """Go on without direct I/O, as a file system may want in the middle; False if it was plain."""
    was = bool(DIRECT and fcntl.fcntl(fd, fcntl.F_GETFL) & DIRECT)
    direct(fd, False)
    return was


def durable(fd: int) -> None:
    """What was written to a file is on the disk when this returns, power cut or not."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def forget(fd: int) -> None:
    """Have nothing of a file in the page cache, where that can be asked for."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
