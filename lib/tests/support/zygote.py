"""Gradings that start at once: forked from a process that has imported torch and pytest already.

`check` starts two interpreters for each grading, and ranks a third; each imports for seconds. The
wrong answers of a topic are some gradings more, so they share one such process. What an answer
may reach stays as it is: `weft.grade` itself, and the grading of each topic's solutions, use
processes of their own.

    test     asks for a grading (Zygote), and waits for it
    zygote   has run the topic's `warm()`, and forks (main)
    grader   runs pytest, as `python -m pytest` would
    spare    forked before the grader has seen a test; becomes the answers' side
"""

import contextlib
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

from weft.grade import confine
from weft.grade.worker import warm

QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
STREAMS = {"stdin": 0, "stdout": 1, "stderr": 2}
START = 120  # seconds for the imports
HIGH = 512  # file descriptors from here on are on their way to their places


class Process:
    """What a Popen is for a process that was forked elsewhere: told of its end on a socket."""

    def __init__(self, pid: int, channel: socket.socket):
        self.pid, self.channel, self.returncode = pid, channel, None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self.channel], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            got = self.channel.recv(8, socket.MSG_WAITALL)
            self.returncode = int.from_bytes(got, "big", signed=True) if got else -signal.SIGKILL
            self.channel.close()
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Zygote:
    """The test's side of the process that forks its graders."""

    def __init__(self, probe: Path, modules: tuple[str, ...] = ()):
        library = [str(Path(confine.__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), str(probe), *modules],
                pass_fds=[theirs.fileno()],
                env=os.environ | QUIET | {"PYTHONPATH": os.pathsep.join(filter(None, library))},
            )
        self.control.settimeout(START)

    def popen(self, command: list[str], **how: object) -> Process:
        """`subprocess.Popen`, but that the process is forked from the zygote."""
        channel, theirs = socket.socketpair()
        with theirs:
            ask(self.control, command, how, theirs.fileno())
            pid = int.from_bytes(self.control.recv(8, socket.MSG_WAITALL), "big")
        return Process(pid, channel)

    @contextlib.contextmanager
    def grading(self) -> Iterator[None]:
        """Within it `check` has its graders from here."""
        from weft.grade import grader

        kept, grader.subprocess = grader.subprocess, like_subprocess(self.popen)
        try:
            yield
        finally:
            grader.subprocess = kept

    def close(self) -> None:
        self.control.close()
        self.process.wait(START)


def like_subprocess(popen: object) -> SimpleNamespace:
    """The module subprocess with another Popen, to put in its place."""
    return SimpleNamespace(**vars(subprocess) | {"Popen": popen})


# --- what is asked of a process that is to become another ----------------------------------------


def ask(channel: socket.socket, command: list[str], how: dict, *more: int) -> None:
    """Send what Popen was asked for, with the files that go along, `more` before them."""
    places = {number: number for number in how.get("pass_fds", ())}
    for name, number in STREAMS.items():
        given = how.get(name)
        if given == subprocess.DEVNULL:
            places[number] = os.open(os.devnull, os.O_RDWR)
        elif given == subprocess.STDOUT:
            places[number] = places[1]
        elif given is not None:
            places[number] = given.fileno()
    wanted = {"command": command, "places": list(places), "session": "start_new_session" in how}
    wanted |= {
        "env": dict(how.get("env") or os.environ),
        "folder": str(how.get("cwd", os.getcwd())),
    }
    message = json.dumps(wanted).encode()
    size = len(message).to_bytes(8, "big")
    socket.send_fds(channel, [size], [*more, *places.values()])
    channel.sendall(message)
    for number, name in ((n, name) for name, n in STREAMS.items()):
        if how.get(name) == subprocess.DEVNULL:
            os.close(places[number])


def asked(channel: socket.socket) -> tuple[dict, list[int]] | None:
    """What `ask` sent, and the files; None at the end of the stream."""
    size, files, _, _ = socket.recv_fds(channel, 8, 20)
    if not size:
        return None
    return json.loads(channel.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)), files


def become(wanted: dict, files: list[int], first: Callable[[], None] = list) -> NoReturn:
    """Do in this process what the command, an interpreter's, would do in one of its own."""
    status = 1
    try:
        settle(wanted, files)
        first()
        flag, what, *words = (word for word in wanted["command"][1:] if word != "-P")
        sys.argv = [flag, *words]
        status = run(flag, what)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def settle(wanted: dict, files: list[int]) -> None:
    """Take up the files at their places, close all others, move to the folder and the session."""
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, HIGH) for file in files]
    os.closerange(3, HIGH)
    for place, file in zip(wanted["places"], high, strict=True):
        os.dup2(file, place)
    os.closerange(HIGH, 2 * HIGH)
    os.environ.clear()
    os.environ.update(wanted["env"])
    os.chdir(wanted["folder"])
    tempfile.tempdir = None  # what an import has looked up
    if wanted["session"]:
        os.setsid()


def run(flag: str, what: str) -> int:
    """Run `-c code` or `-m module`; the exit code."""
    try:
        if flag == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(what, {"__name__": "__main__"})
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


# --- the processes that others are forked from ----------------------------------------------------


class Child:
    """What a Popen is for a process that was forked from this one."""

    def __init__(self, pid: int):
        self.pid, self.returncode = pid, None

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float = START) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.001)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def from_here(command: list[str], **how: object) -> Child:
    """`subprocess.Popen`, but that the process is forked from this one, now."""
    return spare()(command, **how)


def spare() -> Callable[..., Child]:
    """Fork a process now, which becomes what is asked for later; a Popen for that, once."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        confine.die_with_parent()
        kept = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD, HIGH)
        os.closerange(3, HIGH)
        wanted = asked(socket.socket(fileno=kept))
        if wanted is None:
            os._exit(0)
        become(*wanted)
    theirs.close()
    left = [Child(pid)]

    def popen(command: list[str], **how: object) -> Child | subprocess.Popen:
        if not left:
            return subprocess.Popen(command, **how)
        with ours:
            ask(ours, command, how)
        return left.pop()

    return popen


def keep_spare() -> None:
    """Have the answers' side become a process that is forked now, before there are any tests."""
    sys.modules["weft.grade.answers"].subprocess = like_subprocess(spare())


def main() -> None:
    """Import, then fork a grader per request; sys.argv is the socket, the probe, the modules."""
    control, (probe, *modules) = socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]
    confine.die_with_parent()
    warm(Path(probe))  # before the others: it says how Triton is to be loaded
    for name in ("pytest", "weft.grade.answers", *modules):
        import_module(name)
    if "weft.process.forkserver" in sys.modules:
        sys.modules["weft.process.forkserver"].subprocess = like_subprocess(from_here)
    gc.freeze()  # or every fork would go through all that was imported, and copy it
    while job := asked(control):
        wanted, (tell, *files) = job
        grader = os.fork()
        if grader == 0:
            become(wanted, files, first=keep_spare)
        for file in files:
            os.close(file)
        control.sendall(grader.to_bytes(8, "big"))
        code = os.waitstatus_to_exitcode(os.waitpid(grader, 0)[1])
        os.write(tell, code.to_bytes(8, "big", signed=True))
        os.close(tell)


if __name__ == "__main__":
    main()
