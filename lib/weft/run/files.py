"""Files that are made new, put in place whole and durable, and known by their digest.

A file that others rely on is never changed where it lies. Its bytes go to a new file beside it,
they are brought to the disk, and a rename gives them the name: whoever looks finds the old file or
the new one, whole, also after a power cut. New files are for their owner alone, a link is never
followed, and a digest tells whether what is read is what was written.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG

from xxhash import xxh3_128_hexdigest

NEW = ".new"  # behind the name of a file that is on its way into place


class Damaged(OSError):
    """A file does not hold what was written to it."""


def damaged(path: Path, what: str) -> Damaged:
    """The error for a file with wrong bytes, or none; `what` is wrong, and what is safe."""
    return Damaged(errno.EIO, what, str(path))


def digest(data: bytes | memoryview) -> str:
    """The XXH3 checksum of some bytes: 128 bits as 32 hexadecimal digits.

    What differs by accident has one chance in 2^128 to go unnoticed. It is as fast
    as memory, and not cryptographic: two contents with one digest can be made.

    >>> digest(b"weft")
    '69aeedc904d9a734126c4f6354db18ad'
    """
    return xxh3_128_hexdigest(data)


def create(path: Path) -> int:
    """Open a new file for its owner alone; FileExistsError if a name is taken."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


@contextmanager
def writing(path: Path) -> Iterator[Callable[[bytes | memoryview], None]]:
    """A function that appends to a new file, which is on the disk when this ends.

    An OSError names the file, of which a part may lie there then.
    """
    fd = create(path)

    def write(data: bytes | memoryview) -> None:
        left = memoryview(data).cast("B")
        while left:  # a write may take less than it is given
            left = left[os.write(fd, left) :]

    try:
        try:
            yield write
            durable(fd)
        finally:
            os.close(fd)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def replace(path: Path, data: bytes) -> None:
    """Put a new file with these bytes in place of the one of that name, if any.

    All that was made in the folder before is durable before this is in its place,
    so the bytes may speak of other files. When it returns, the new file is there
    for good. If it fails or is ended before, the old one or the new one is there.
    """
    fresh = path.with_name(path.name + NEW)
    fresh.unlink(missing_ok=True)  # of a replacement that was broken off
    with writing(fresh) as write:
        write(data)
    sync(path.parent)
    os.rename(fresh, path)
    sync(path.parent)


def durable(fd: int) -> None:
    """Wait until the disk has what was written to an open file, power cut or not."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS, whose fsync leaves it in the drive's cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)  # all but the times of the file


def sync(folder: Path) -> None:
    """Wait until the disk knows the names that were made, changed and removed in a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_file(path: Path) -> int:
    """Open a file for reading; Damaged if its name is a link's, a folder's or a pipe's."""
    odd = damaged(path, "it is no file but a link, a folder or a pipe; nothing was read or changed")
    try:  # O_NONBLOCK, since a pipe keeps whoever opens it waiting for a writer
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise odd from None
        raise
    if not S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise odd
    return fd


def read(path: Path, start: int = 0, size: int | None = None) -> bytes:
    """A file's bytes from `start` on, at most `size` of them, and fewer where it ends before."""
    with open(open_file(path), "rb") as file:
        end = os.fstat(file.fileno()).st_size  # a size that was read somewhere may be absurd
        file.seek(min(start, end))
        return file.read(end if size is None else min(size, end))
