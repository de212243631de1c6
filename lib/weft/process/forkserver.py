"""Ranks as real processes: started in milliseconds, watched together, ended together.

Four kinds of process, each the parent of the next:

    caller   your script or notebook kernel; asks for ranks and waits
    server   has imported torch and does nothing but fork; one per caller, started at the first call
    nursery  one per launch: forks the ranks, hears them out, ends them (nursery.py)
    rank     runs the function (rank.py)

A fork of a process that has torch loaded takes milliseconds, where a fresh interpreter takes
seconds; and since the server is idle and has one thread, forking it is safe where forking a
notebook kernel, or a process that has touched CUDA, is not.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

from weft.process.job import PATIENCE, Job, receive, send
from weft.process.rank import as_child
from weft.process.supervisor import Nursery


class Server:
    """The process that forks nurseries for this one; started when first needed.

    It ends when this process does, because its socket closes then.
    """

    def __init__(self, preload: tuple[str, ...]) -> None:
        ours, theirs = socket.socketpair()
        # Threads do not survive a fork, so the server must not start any while importing.
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        boot = (
            "import sys, json, importlib\n"
            "sys.path[:], fd, preload = json.loads(sys.argv[1])\n"
            "for name in preload: importlib.import_module(name)\n"
            f"from {__name__} import _serve\n"
            "_serve(fd)"
        )
        self.owner = os.getpid()
        self.words = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the server)
        with theirs:
            setup = json.dumps([sys.path, theirs.fileno(), preload])
            self.process = subprocess.Popen(
                [sys.executable, "-c", boot, setup],
                stdin=subprocess.DEVNULL,
                stdout=self.words,
                stderr=self.words,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **quiet},
                start_new_session=True,  # Ctrl-C is for the caller
            )
        self.socket = ours
        self.lock = threading.Lock()

    def nursery(self) -> socket.socket:
        """A socket to a new nursery; OSError if the server is gone."""
        ours, theirs = socket.socketpair()
        with theirs, self.lock:
            socket.send_fds(self.socket, [b"+"], [theirs.fileno()])
        return ours

    def last_words(self) -> str:
        """What the server wrote before it ended, for the error message."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        self.words.seek(0)
        return self.words.read().decode(errors="replace")[-4000:]

    def close(self) -> None:
        """End the server and wait for it."""
        self.socket.close()
        self.words.close()
        if self.owner == os.getpid():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE)


_server: Server | None = None
_starting = threading.Lock()


def _nursery(preload: tuple[str, ...]) -> tuple[Server, socket.socket]:
    """A socket to a new nursery of this process's server, which is started if need be."""
    global _server
    with _starting:
        if _server is not None and (
            _server.owner != os.getpid() or _server.process.poll() is not None
        ):
            _close_server()
        if _server is None:
            _server = Server(preload)
        return _server, _server.nursery()


@atexit.register
def _close_server() -> None:
    global _server
    server, _server = _server, None
    if server is not None:
        server.close()


def run(job: Job, preload: tuple[str, ...], show: Callable[[int, str, bytes], None]) -> list:
    """Run a job on its ranks; return their outcomes by rank, when no process of it is left.

    show(rank, "stdout" or "stderr", data) is called with what the ranks write, as they write.
    """
    server, channel = _nursery(preload)
    try:
        send(channel, job)
        folder = ""
        while True:
            # The nursery keeps the time. This limit is for the case that it does not.
            channel.settimeout(PATIENCE + (job.timeout if folder else 0))
            match receive(channel):
                case ("begun", folder):
                    pass
                case ("wrote", rank, stream, data):
                    show(rank, stream, data)
                case ("ended", outcomes):
                    return outcomes
                case ("broken", words):
                    raise RuntimeError(f"ranks cannot be started: {words}")
                case None if folder:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise RuntimeError("the process that watches over the ranks was killed")
                case None:
                    raise RuntimeError(f"ranks cannot be started: {server.last_words()}")
    except (BrokenPipeError, ConnectionResetError):
        raise RuntimeError(f"ranks cannot be started: {server.last_words()}") from None
    finally:
        _wait_until_gone(channel)


def _wait_until_gone(channel: socket.socket) -> None:
    """Closing our side makes the nursery end every rank; its side closes when it has."""
    with channel, contextlib.suppress(OSError):
        channel.settimeout(PATIENCE)
        channel.shutdown(socket.SHUT_WR)
        while channel.recv(1 << 16):
            pass


# --- the server --------------------------------------------------------------------------------


def _serve(fd: int) -> None:
    """Fork a nursery per request until the caller is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps nurseries
    gc.freeze()  # or each rank's collector would go through, and copy, all that was imported
    with socket.socket(fileno=fd) as requests:
        while True:
            data, fds, _, _ = socket.recv_fds(requests, 1, 1)
            if not data:
                return
            channel = socket.socket(fileno=fds[0])
            if os.fork() == 0:
                requests.close()
                as_child(lambda channel=channel: Nursery(channel).run())
            channel.close()
