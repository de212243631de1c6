"""What the operating system keeps an answer from.

An answer runs as the same user as the grader, so being in another process is not enough: it could
still write to files, read the solutions, open connections, signal its parents, or read their
memory. On Linux, Landlock takes that away for the process and for all it starts, without
privileges. What an older kernel or another system cannot do is left out; the answer's process stays
separate there, but it is not locked in.
"""

import contextlib
import ctypes
import errno
import os
import platform
import resource
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from weft.process.end import NO_NEW_PRIVILEGES, prctl

MEMORY = 8 << 30  # bytes that a process may have for itself in which answers run or are measured
LINUX = sys.platform == "linux"
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
# landlock(7): write to, remove and make files of every kind; rename across folders; truncate;
# read files and list folders.
WRITE_FILE, EVERY_WRITE, RENAME, TRUNCATE = 1 << 1, 0b1_1111_1111 << 4 | 1 << 1, 1 << 13, 1 << 14
READ_FILE, LIST, READ = 1 << 2, 1 << 3, 0b11 << 2
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "dri")  # and not what is shared
BIND_AND_CONNECT = 0b11  # of TCP
OF_FILES = WRITE_FILE | READ_FILE | TRUNCATE
ABSTRACT_SOCKETS, SIGNALS = 1 << 0, 1 << 1


def limit(memory: int) -> None:
    """Cap the memory that this process takes from now on, shared or not, and forbid core dumps."""
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory)]
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits.append((resource.RLIMIT_AS, pages * resource.getpagesize() + memory))
    for kind, value in limits:
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def landlock() -> int:
    """The version of Landlock that this kernel offers; 0 for none."""
    if not LINUX:
        return 0
    return max(0, ctypes.CDLL(None, use_errno=True).syscall(CREATE_RULESET, None, 0, 1))


def keep_out(
    unreadable: Iterable[Path], readable: Iterable[Path] = (), listed: Iterable[Path] = ()
) -> bool:
    """Keep this process and all it starts from reading what is `unreadable`, or below that.

    But for what is `readable`. Nor can it list the folders on the way there, but for those
    `listed`, nor read what is made in them later. False where the kernel offers no Landlock.
    """
    rules = [(path, READ_FILE) for path in readable]
    rules += [(path, LIST) for path in listed]
    rules += [(path, READ) for path in all_but(unreadable)]
    return bool(landlock()) and _restrict([READ], rules)


def lock_in(writable: Path, readable: Iterable[Path]) -> bool:
    """Let this process and all it starts write below `writable` only, and signal only each other.

    It can read that, and what is `readable`. Devices that keep nothing stay writable. False where
    the kernel offers no Landlock; before Linux 6.7 TCP, and before 6.12 signals are not covered.
    """
    version = landlock()
    writes = EVERY_WRITE | (RENAME if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    fields = [writes | READ]
    fields += [BIND_AND_CONNECT] if version >= 4 else []
    fields += [ABSTRACT_SOCKETS | SIGNALS] if version >= 6 else []
    devices = (*(Path("/dev", name) for name in DEVICES), *Path("/dev").glob("nvidia*"))
    rules = [(writable, writes | READ)]
    rules += [(path, writes & (WRITE_FILE | TRUNCATE)) for path in devices]
    rules += [(path, READ) for path in readable]
    return bool(version) and _restrict(fields, rules)


def _restrict(handled: Sequence[int], rules: Iterable[tuple[Path, int]]) -> bool:
    """Refuse what is `handled`, of files and beyond, but for what the rules allow below paths.

    What was refused before stays so. False where the kernel does not take it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = (ctypes.c_uint64 * len(handled))(*handled)
    handle = libc.syscall(CREATE_RULESET, ruleset, ctypes.sizeof(ruleset), 0)
    if handle < 0:
        return False
    for path, allowed in rules:
        _allow(libc, handle, path, allowed)
    prctl(NO_NEW_PRIVILEGES, 1)
    done = libc.syscall(RESTRICT_SELF, handle, 0) == 0
    os.close(handle)
    return done


# --- system calls ---------------------------------------------------------------------------------

# By which processes could meet that share no file: sockets of their own, System V's and POSIX's
# queues and shared memory, the kernel's keys, each other's memory, and io_uring, which does all of
# it unseen. The numbers are those of x86-64 and of all that came later.
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
CALLS = (
    *((41, 198), (29, 194), (68, 186), (64, 190), (240, 180), (248, 217), (249, 218), (250, 219)),
    *((101, 117), (310, 270), (311, 271), (425, 425), (298, 241), (321, 280), (434, 434)),
)
NOT_PERMITTED, ALLOWED = 0x00050000 | errno.EPERM, 0x7FFF0000  # seccomp(2)
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # of the kernel's filter language
SECCOMP, FILTER = 22, 2
X32 = 0x40000000  # another set of numbers for the same calls


def no_meeting() -> bool:
    """Keep this process and all it starts from every way of meeting a process not of its own.

    The connections it has stay. False where the kernel or the machine has no such filter.
    """
    if not LINUX or platform.machine() not in MACHINES:
        return False
    architecture, column = MACHINES[platform.machine()]
    numbers = sorted({call[column] for call in CALLS})
    count = len(numbers)
    program = [
        (LOAD, 0, 0, 4),  # the architecture that the call is for
        (EQUAL, 0, count + 3, architecture),
        (LOAD, 0, 0, 0),  # the call's number
        (AT_LEAST, count + 1, 0, X32),
        *((EQUAL, count - i, 0, number) for i, number in enumerate(numbers)),
        (RETURN, 0, 0, ALLOWED),
        (RETURN, 0, 0, NOT_PERMITTED),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    kept = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))

    program = Program(len(code) // 8, ctypes.addressof(kept))
    prctl(NO_NEW_PRIVILEGES, 1)
    return ctypes.CDLL(None).prctl(SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0


# --- files ----------------------------------------------------------------------------------------


def all_but(unreadable: Iterable[Path]) -> Iterator[Path]:
    """The files and folders that hold everything but these: what lies beside them on their way.

    No links: what they lead to is itself beside them, or is one of these.
    """
    unreadable = _resolved(unreadable)
    unreadable = {path for path in unreadable if unreadable.isdisjoint(path.parents)}
    folders = {path.parent for path in unreadable if path != path.parent}
    above = folders.union(*(folder.parents for folder in folders))
    if not above:
        yield Path("/")
    on_the_way = {str(path) for path in above | unreadable}
    for folder in above:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            beside = (entry for entry in entries if entry.path not in on_the_way)
            yield from (Path(entry.path) for entry in beside if not entry.is_symlink())


def _resolved(paths: Iterable[Path]) -> set[Path]:
    """Where files and folders really are. Most lie in few folders, each of which is asked once."""
    real = cache(os.path.realpath)

    def place(path: Path) -> str:
        there = os.path.join(real(path.parent), path.name)
        return real(path) if path.name == ".." or os.path.islink(there) else there

    return {Path(place(path)) for path in paths}


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, allowed: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # it is gone, or not ours to read anyway
    if not stat.S_ISDIR(os.fstat(handle).st_mode):
        allowed &= OF_FILES  # the rest is refused for what is no folder
    rule = _Beneath(allowed, handle)
    libc.syscall(ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
    os.close(handle)
