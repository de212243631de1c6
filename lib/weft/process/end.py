"""How a process is bound to others, and how everything below it is ended.

What a process starts can leave its group and its session and outlive its parent. Only a subreaper
keeps it: the kernel makes such orphans the subreaper's children, so that a walk down from it finds
all of them. Linux has that; elsewhere what stays in its parent's group is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

DIES_WITH_PARENT, DUMPABLE, NO_NEW_PRIVILEGES, SUBREAPER = 1, 4, 38, 36  # prctl(2)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; nothing where there is no prctl."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with(parent: int) -> None:
    """Have this process killed when `parent`, which has forked it, ends."""
    prctl(DIES_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we had asked
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent is gone, setsid or not."""
    prctl(SUBREAPER, 1)


def hide_memory(hidden: bool = True) -> None:
    """Keep other processes of the same user out of this one's memory and open files.

    What it forks is hidden as well.
    """
    prctl(DUMPABLE, 0 if hidden else 1)


def keep_only(*files: int) -> None:
    """Close every file of this process but the standard streams and these."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = 1 << 20 if most == resource.RLIM_INFINITY else most
    low = 2
    for high in (*sorted(files), most):
        os.closerange(low + 1, high)
        low = high


def as_child(body: Callable[[], object]) -> NoReturn:
    """Run what a forked process is for, and never return into its parent's code."""
    status = 1
    try:
        body()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def state(pid: int) -> str:
    """A process's state as /proc has it: T or t is stopped, Z or X has ended; "" if unknown."""
    return (_stat(pid) or ("", ""))[0]


def _stat(pid: int | str) -> tuple[str, int] | None:
    """The state and the parent of a process, from /proc; None where it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    found, parent = stat.rpartition(")")[2].split()[:2]
    return found, int(parent)


def descendants(pid: int) -> set[int]:
    """The living processes below `pid`, from /proc; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        stat = _stat(entry.name)
        if stat is not None and stat[0] not in "ZX":
            children.setdefault(stat[1], []).append(int(entry.name))
    found, fringe = set(), [pid]
    while fringe:
        fringe = [c for parent in fringe for c in children.get(parent, ()) if c not in found]
        found.update(fringe)
    return found


def end_descendants(groups: Iterable[int] = ()) -> None:
    """Kill and reap everything below this process, which adopts orphans, and these groups.

    The groups are those of children that have not been reaped.
    """
    groups = list(groups)
    for group in groups:
        kill_group(group)
        _signal(group, signal.SIGKILL)  # its leader may not have made it yet
    with contextlib.suppress(ChildProcessError):
        for group in groups:
            os.waitpid(group, 0)
    while not _childless():
        _kill_below(os.getpid())
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _childless() -> bool:
    """Reap the children that have ended, and say whether there are no others."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    return True


def end_with_descendants(pid: int) -> None:
    """Kill a process that adopts orphans, and everything below it."""
    _signal(pid, signal.SIGSTOP)
    _kill_below(pid)
    _signal(pid, signal.SIGKILL)


def _kill_below(pid: int) -> None:
    """Kill everything below a process.

    All are stopped before any is killed, and looked for again until no new one turns up: what
    forks all the time cannot slip through between the looking and the killing.
    """
    stopped: set[int] = set()
    while new := descendants(pid) - stopped:
        for process in new:
            _signal(process, signal.SIGSTOP)
        stopped |= new
    for process in stopped:
        _signal(process, signal.SIGKILL)


def kill_group(group: int) -> None:
    """Kill the processes of a group, none if there are none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)
