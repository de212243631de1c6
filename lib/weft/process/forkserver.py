"""Processes started in milliseconds, watched together, ended together.

Four kinds of process, each the parent of the next:

    caller      your script or notebook kernel, or a grader; asks for ranks and waits
    forkserver  has imported what is slow to import and does nothing but fork
    supervisor  one per launch: forks the ranks, hears them out, ends them (supervisor.py)
    rank        runs the function (rank.py)

A fork of a process that has torch loaded takes milliseconds, where a fresh interpreter takes
seconds; and since the forkserver is idle and has one thread, forking it is safe where forking a
notebook kernel, or a process that has touched CUDA, is not.

multiprocessing has a forkserver too. Its children import the caller's script again, which then
needs a main guard, and neither a child that hangs nor what a child has started is ended there.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import math
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from multiprocessing import connection
from typing import BinaryIO

from weft.process.end import as_child, end_with_descendants, keep_only, state
from weft.process.job import PATIENCE, Job, Outcome, named
from weft.process.messages import Frames, send
from weft.process.supervisor import Supervisor

BEAT = 1.0  # seconds between two looks whether a supervisor is stopped that is late
FILES = 16  # descriptors that may come along with a job
# Threads do not survive a fork, so a forkserver must not start any while importing.
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
BOOT = """
import json, sys
path, fd, setup, arguments = json.loads(sys.argv[1])
sys.path[:] = path or sys.path
from weft.process.forkserver import main
main(fd, setup, arguments)
"""


class Forkserver:
    """The process that forks supervisors for this one.

    It ends when this process does, because its socket closes then.
    """

    def __init__(
        self, channel: socket.socket, process: subprocess.Popen | None, words: BinaryIO | None
    ) -> None:
        self.channel, self.process, self.words = channel, process, words
        self.owner = os.getpid()

    @classmethod
    def fresh(
        cls,
        setup: str,
        *arguments: str,
        environment: dict[str, str] | None = None,
        path: list[str] | None = None,
    ) -> Forkserver:
        """A new interpreter, which calls setup, "module:function", with the arguments once.

        environment and path are its own where they are given; else those that an interpreter
        finds here that takes nothing from the folder it is started in.
        """
        ours, theirs = socket.socketpair()
        words = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the forkserver)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT]
                + [json.dumps([path, theirs.fileno(), setup, arguments])],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                pass_fds=[theirs.fileno()],
                env={**(environment or os.environ), **QUIET},
                start_new_session=True,  # Ctrl-C is for the caller
            )
        return cls(ours, process, words)

    @classmethod
    def here(cls, *keep: int) -> Forkserver:
        """A copy of this process, which must have one thread, as it is now: it stays so.

        Of the files that are open it has those to `keep`, and so have the ranks of its jobs.
        """
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            keep_only(theirs.fileno(), *keep)
            as_child(lambda: serve_forks(theirs))
        theirs.close()
        return cls(ours, None, None)

    @property
    def gone(self) -> bool:
        """Whether it has ended, or belongs to the process that this one was forked from."""
        return self.owner != os.getpid() or bool(connection.wait([self.channel], 0))

    def start(self, job: Job, *files: int) -> Launched:
        """The job, begun, with these descriptors in its ranks."""
        ours, theirs = socket.socketpair()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it says so: `receive`
            with theirs:  # one byte is sent whole, whoever else sends
                socket.send_fds(self.channel, [b"+"], [theirs.fileno(), *files])
            send(ours, pickle.dumps(job))
        return Launched(job, ours, self)

    def last_words(self) -> str:
        """What it wrote before it ended, for the error message."""
        if self.process is None:
            return "the process that forks them has ended"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        self.words.seek(0)
        return self.words.read().decode(errors="replace")[-4000:]

    def close(self) -> None:
        """End it; what it has forked goes on until its own caller is done."""
        self.channel.close()
        if self.process is not None:
            self.words.close()
            if self.owner == os.getpid():
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> Forkserver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Launched:
    """The processes of one job, as the one sees them who asked for it; all end with `close`."""

    def __init__(self, job: Job, channel: socket.socket, server: Forkserver) -> None:
        self.timeout, self.channel, self.server = job.timeout, channel, server
        self.folder = ""  # where the ranks meet, once they have begun
        self.supervisor = 0  # its process, from then on
        self.deadline = math.inf  # when it should have ended them
        self.frames, self.messages, self.closed = Frames(), deque(), False

    def wait(
        self,
        patience: float | None = None,
        show: Callable[[int, str, bytes], None] = lambda *_: None,
    ) -> list[Outcome] | None:
        """The outcomes by rank, when no process of the job is left; None where that takes too long.

        show(rank, "stdout" or "stderr", data) is called with what the ranks write, as they write.
        The supervisor keeps the job's time. Without patience we wait for the case that it does not.
        RuntimeError where the ranks could not be started, or nobody watches over them any more.
        """
        end = time.monotonic() + (2 * PATIENCE + self.timeout if patience is None else patience)
        while self.ready(end):
            match self.receive():
                case ("wrote", rank, stream, data):
                    show(rank, stream, data)
                case ("ended", outcomes):
                    return outcomes
                case ("lost", words):
                    raise RuntimeError(words)
        return None

    def ready(self, end: float) -> bool:
        """Whether there is something to receive before the monotonic clock says `end`.

        A supervisor that is stopped keeps no time: when that is up, it is ended with all below it.
        """
        while not self.messages and not self.closed:
            now = time.monotonic()
            if connection.wait([self.channel], max(0.0, min(BEAT, end - now))):
                self._take()
            elif now >= end:
                return False
            elif now >= self.deadline and state(self.supervisor) in ("T", "t"):
                end_with_descendants(self.supervisor)
        return True

    def _take(self) -> None:
        """Take what has come, which may be a part of a message."""
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = self.channel.recv(1 << 20)
        self.closed = not data
        self.messages.extend(self.frames.feed(data))

    def receive(self) -> tuple:
        """What comes next: ("begun", …), ("wrote", rank, stream, data), or the last thing.

        That is ("ended", outcomes), or ("lost", words) which say what was in the way.
        """
        self.ready(time.monotonic() + PATIENCE)
        if not self.messages and self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            return "lost", "the process that watches over the ranks was killed, or was stopped"
        if not self.messages:
            return "lost", f"ranks cannot be started: {self.server.last_words()}"
        match fact := pickle.loads(self.messages.popleft()):
            case ("begun", folder, supervisor):
                self.folder, self.supervisor = folder, supervisor
                self.deadline = time.monotonic() + self.timeout
            case ("broken", words):
                return "lost", f"ranks cannot be started: {words}"
        return fact

    def close(self) -> None:
        """End every rank and what it has started, and wait until all is gone.

        The supervisor ends them when our side of the socket closes, and closes its own after.
        """
        with self.channel, contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)
            end = time.monotonic() + PATIENCE
            self.timeout, self.deadline = 0.0, time.monotonic()
            while self.ready(end) and self.messages:
                self.receive()

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- a process's own ---------------------------------------------------------------------------

_own: Forkserver | None = None
_starting = threading.Lock()


def own(preload: tuple[str, ...]) -> Forkserver:
    """This process's forkserver, started, with these modules imported, if it is not there."""
    global _own
    with _starting:
        if _own is not None and _own.gone:
            _close_own()
        if _own is None:
            _own = Forkserver.fresh(f"{__name__}:preload", *preload, path=sys.path)
        return _own


def keep_copy(*keep: int) -> None:
    """Have all later launches of this process forked from it as it is now, with files to keep."""
    global _own
    _own = Forkserver.here(*keep)


@atexit.register
def _close_own() -> None:
    global _own
    server, _own = _own, None
    if server is not None:
        server.close()


# --- in the forkserver -------------------------------------------------------------------------


def main(fd: int, setup: str, arguments: list[str]) -> None:
    """Be a forkserver whose requests come on a socket."""
    gc.disable()  # what is imported stays, and to go through it takes a fifth of the time
    named(setup)(*arguments)
    gc.enable()
    serve_forks(socket.socket(fileno=fd))


def preload(*modules: str) -> None:
    """Import modules."""
    for module in modules:
        import_module(module)


def serve_forks(requests: socket.socket) -> None:
    """Fork a supervisor per request until the caller is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps supervisors
    gc.freeze()  # or each rank's collector would go through, and copy, all that was imported
    with requests:
        while True:
            asked, files, _, _ = socket.recv_fds(requests, 1, FILES)
            if not asked:
                return
            if os.fork() == 0:
                requests.close()
                as_child(Supervisor(*files).run)
            for file in files:
                os.close(file)
