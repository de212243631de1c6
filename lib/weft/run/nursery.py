"""Ranks as real processes: started in milliseconds, watched together, ended together.

Four kinds of process, each the parent of the next:

    caller   your script or notebook kernel; asks for ranks and waits
    server   has imported torch and does nothing but fork; one per caller, started at the first call
    nursery  one per launch: forks the ranks, hears them out, ends them
    rank     runs the function

A fork of a process that has torch loaded takes milliseconds, where a fresh interpreter takes
seconds; and since the server is idle and has one thread, forking it is safe where forking a
notebook kernel, or a process that has touched CUDA, is not.

The nursery adopts every process that a rank leaves behind (PR_SET_CHILD_SUBREAPER) and is not
done until it has no child left. It ends the ranks when all have returned, when one has failed,
when the time is up, or when the caller is gone: its socket closes then, whatever killed it.
Nothing here knows of torch; what a rank does is passed in as `body`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import io
import json
import linecache
import os
import pickle
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

GRACE = 0.2  # how long after the first failure others may report theirs: it may not be the cause
LINGER = 1.0  # how long a rank that returned keeps its connections open for its peers
PATIENCE = 120.0  # for what should take moments: starting the server, ending killed processes
_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class Outcome:
    """How one rank ended.

    kind: "returned", "raised", "died", "hung" (still running when the time was up) or "stopped"
    (still running when another rank had failed). detail: a remote traceback, the stack of a hung
    rank, or the last words of a dead one. value: the pickled value of a rank that returned.
    """

    rank: int
    kind: str
    cause: str = ""
    detail: str = ""
    value: bytes = b""
    time: float = 0.0


@dataclass(frozen=True)
class Job:
    """What a nursery needs to know: how many ranks, for how long, and in which surroundings.

    body names the function that a rank is for, "module:function" in a module that the server has
    loaded: function(job, rank, folder) -> bytes, with a folder that all ranks of the launch share.
    """

    body: str
    payload: bytes
    size: int
    timeout: float
    environment: dict[str, str]
    folder: str
    path: list[str]
    sources: dict[str, str]
    filters: list[bytes]

    @classmethod
    def here(cls, body: str, payload: bytes, size: int, timeout: float) -> Job:
        """A job in the surroundings of the caller: environment, folder, sys.path, warnings."""
        try:
            folder = os.getcwd()
        except FileNotFoundError:
            folder = os.sep
        return cls(
            body=body,
            payload=payload,
            size=size,
            timeout=timeout,
            environment=dict(os.environ),
            folder=folder,
            path=list(sys.path),
            sources=_unsaved_sources(),
            filters=list(_picklable(warnings.filters)),
        )

    def settle(self) -> None:
        """Make this process's surroundings those of the job."""
        os.environ.clear()
        os.environ.update(self.environment)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        sys.path[:] = self.path
        for name, text in self.sources.items():
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        warnings.filters[:] = [pickle.loads(entry) for entry in self.filters]
        warnings.filterwarnings("ignore", message="(?!)")  # tells the module that they changed


def _unsaved_sources() -> dict[str, str]:
    """Sources that live in no file, such as notebook cells: tracebacks and triton want them."""
    entries = [(name, entry) for name, entry in linecache.cache.items() if len(entry) == 4]
    return {name: "".join(lines) for name, (_, mtime, lines, _) in entries if mtime is None}


def _picklable(entries: list[Any]) -> Iterator[bytes]:
    for entry in entries:
        with contextlib.suppress(Exception):
            yield pickle.dumps(entry)


# --- the caller -------------------------------------------------------------------------------


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
        _send(channel, job)
        folder = ""
        while True:
            # The nursery keeps the time. This limit is for the case that it does not.
            channel.settimeout(PATIENCE + (job.timeout if folder else 0))
            match _receive(channel):
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


def _send(channel: socket.socket, message: object) -> None:
    data = pickle.dumps(message)
    channel.sendall(_LENGTH.pack(len(data)) + data)


def _receive(channel: socket.socket) -> Any:
    """The next message, or None where the other side has closed."""
    head = _exactly(channel, _LENGTH.size)
    body = head and _exactly(channel, *_LENGTH.unpack(head))
    return pickle.loads(body) if body else None


def _exactly(channel: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = channel.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


# --- the server -------------------------------------------------------------------------------


def _serve(fd: int) -> None:
    """Fork a nursery per request until the caller is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps nurseries
    with socket.socket(fileno=fd) as requests:
        while True:
            data, fds, _, _ = socket.recv_fds(requests, 1, 1)
            if not data:
                return
            channel = socket.socket(fileno=fds[0])
            if os.fork() == 0:
                requests.close()
                _as_child(lambda channel=channel: _Nursery(channel).run())
            channel.close()


def _as_child(body: Callable[[], None]) -> None:
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


# --- the nursery ------------------------------------------------------------------------------


class _CallerGone(Exception):
    pass


class _Child:
    """A rank as its nursery sees it: a process and the ends of three pipes."""

    def __init__(self, rank: int, pid: int, ends: dict[str, int]) -> None:
        self.rank, self.pid, self.ends = rank, pid, ends
        self.result = bytearray()
        self.words = b""  # the last it wrote to stderr
        self.outcome: Outcome | None = None
        for fd in ends.values():
            os.set_blocking(fd, False)

    def read(self, stream: str) -> bytes | None:
        """What is there to read: b"" at the end, None where nothing is there yet."""
        try:
            data = os.read(self.ends[stream], 1 << 20)
        except BlockingIOError:
            return None
        if stream == "stderr":
            self.words = (self.words + data)[-4000:]
        if stream == "result":
            self.result += data
            head = _LENGTH.size
            whole = len(self.result) >= head and _LENGTH.unpack(self.result[:head])[0]
            if whole and len(self.result) >= head + whole and self.outcome is None:
                self.outcome = pickle.loads(bytes(self.result[head:]))
                self.result.clear()
        return data

    def died(self, status: int) -> None:
        """Note its death, unless it had reported before."""
        while self.outcome is None and self.read("result"):
            pass
        if self.outcome is None:
            code = os.waitstatus_to_exitcode(status)
            cause = f"exited with code {code} before it returned"
            if code < 0:
                cause = f"killed by {signal.Signals(-code).name}"
                cause += " (out of memory, perhaps)" if -code == signal.SIGKILL else ""
            self.outcome = Outcome(self.rank, "died", cause, time=time.monotonic())


class _Nursery:
    """One launch: fork the ranks, hear them out, leave nothing running."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.children: list[_Child] = []
        self._running: set[int] = set()  # a pid that has been reaped may be another's
        self.selector = selectors.DefaultSelector()

    def run(self) -> None:
        job = _receive(self.channel)
        if job is None:
            return
        _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
        self.folder = ""
        try:
            self.folder = tempfile.mkdtemp(prefix="weft-")
            outcomes = self._watch(job)
            self._end_all()
            self._forward_the_rest()
            _send(self.channel, ("ended", outcomes))
        except (_CallerGone, BrokenPipeError, ConnectionResetError):
            pass
        except Exception:  # no process or file left to be had, say
            self._end_all()
            _send(self.channel, ("broken", traceback.format_exc()))
        finally:
            self._end_all()
            for fd in [fd for child in self.children for fd in child.ends.values()]:
                os.close(fd)  # to remove a folder takes a file descriptor, which may have run out
            shutil.rmtree(self.folder, ignore_errors=True)

    def _watch(self, job: Job) -> list[Outcome]:
        """Until all have returned, or one has failed and the grace is over, or time is up."""
        woken, waker = socket.socketpair()
        waker.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self.selector.register(woken, selectors.EVENT_READ, None)
        self.selector.register(self.channel, selectors.EVENT_READ, None)
        for rank in range(job.size):
            self._fork(job, rank)
        _send(self.channel, ("begun", self.folder))
        deadline = time.monotonic() + job.timeout
        failed = False
        while not all(child.outcome for child in self.children):
            if not failed and self._failed():
                failed, deadline = True, time.monotonic() + GRACE
            left = deadline - time.monotonic()
            if left <= 0:
                break
            for key, _ in self.selector.select(left):
                if key.fileobj is self.channel:
                    raise _CallerGone
                if key.fileobj is woken:
                    woken.recv(4096)
                    self._reap()
                else:
                    self._forward(*key.data)
        return self._outcomes()

    def _fork(self, job: Job, rank: int) -> None:
        pipes = {stream: os.pipe() for stream in ("result", "stdout", "stderr")}
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.selector.close()
            self.channel.close()
            for fd in [fd for child in self.children for fd in child.ends.values()]:
                os.close(fd)
            for reader, _ in pipes.values():
                os.close(reader)
            ends = {stream: writer for stream, (_, writer) in pipes.items()}
            _as_child(lambda: _be_rank(job, rank, ends, self.folder))
        for _, writer in pipes.values():
            os.close(writer)
        child = _Child(rank, pid, {stream: reader for stream, (reader, _) in pipes.items()})
        self.children.append(child)
        self._running.add(pid)
        for stream, fd in child.ends.items():
            self.selector.register(fd, selectors.EVENT_READ, (child, stream))

    def _forward(self, child: _Child, stream: str) -> bool:
        """Read once from a rank; False where its end is reached or nothing is there."""
        data = child.read(stream)
        if data == b"":
            with contextlib.suppress(KeyError):
                self.selector.unregister(child.ends[stream])
        elif data and stream != "result":
            _send(self.channel, ("wrote", child.rank, stream, data))
        return bool(data)

    def _forward_the_rest(self) -> None:
        for child in self.children:
            for stream in ("stdout", "stderr"):
                while self._forward(child, stream):
                    pass

    def _reap(self) -> None:
        by_pid = {child.pid: child for child in self.children}
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if child := by_pid.get(ended[0]):
                    child.died(ended[1])
                    self._running.discard(child.pid)
                    _kill_group(child.pid)

    def _failed(self) -> bool:
        return any(child.outcome and child.outcome.kind != "returned" for child in self.children)

    def _outcomes(self) -> list[Outcome]:
        """Every rank's outcome; those still running were stopped, or hung if none had failed."""
        kind = "stopped" if self._failed() else "hung"
        running = [child for child in self.children if child.outcome is None]
        stacks = self._stacks(running) if kind == "hung" else {}
        for child in running:
            child.outcome = Outcome(child.rank, kind, detail=stacks.get(child.rank, ""))
        for child in self.children:
            if child.outcome.kind == "died":
                while self._forward(child, "stderr"):
                    pass
                words = child.words.decode(errors="replace").strip()
                child.outcome = replace(child.outcome, detail=words)
        return [child.outcome for child in self.children]

    def _stacks(self, running: list[_Child]) -> dict[int, str]:
        """Where each hung rank is, as faulthandler writes it when signalled."""
        for child in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGUSR2)
        files = {child.rank: Path(_stack_file(self.folder, child.rank)) for child in running}
        before, end = None, time.monotonic() + 1.0
        while time.monotonic() < end:
            time.sleep(0.05)
            texts = {
                rank: file.read_text(errors="replace") if file.exists() else ""
                for rank, file in files.items()
            }
            if texts == before and all(texts.values()):
                break
            before = texts
        return texts

    def _end_all(self) -> None:
        """Kill whatever descends from this process until nothing does.

        What a killed process leaves behind becomes a child of this one, so the loop meets it too.
        """
        for pid in self._running:
            _kill_group(pid)
        while True:
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                pid, _ = os.waitpid(-1, 0)
            except ChildProcessError:
                return
            self._running.discard(pid)


def _kill_group(pid: int) -> None:
    """Kill a rank and those of its children that stayed in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _children() -> list[int]:
    """The children of this process, as /proc knows them (empty where there is no /proc)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, rest = stat.parent.name, stat.read_text(errors="replace").rpartition(")")[2]
            if int(rest.split()[1]) == os.getpid():
                found.append(int(pid))
    return found


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _stack_file(folder: str, rank: int) -> str:
    return os.path.join(folder, f"stack.{rank}")


# --- a rank -----------------------------------------------------------------------------------


def _be_rank(job: Job, rank: int, ends: dict[str, int], folder: str) -> None:
    """Run the body, report, and stay until ended: connections stay open for the peers."""
    nursery = os.getppid()
    os.setsid()
    _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: should the nursery be killed
    if os.getppid() != nursery:
        return
    _own_streams(ends)
    with open(_stack_file(folder, rank), "w") as stack:
        faulthandler.enable(sys.stderr)
        faulthandler.register(signal.SIGUSR2, stack, all_threads=False)
        outcome = _outcome(job, rank, folder)
        sys.stdout.flush()
        sys.stderr.flush()
        data = pickle.dumps(outcome)
        with open(ends["result"], "wb") as result:
            result.write(_LENGTH.pack(len(data)) + data)
        # A peer must not see a connection close because of a failure: it would report it as its
        # own, and might be heard first. One that returned may go; who still waits for it is wrong.
        time.sleep(LINGER if outcome.kind == "returned" else PATIENCE)


def _own_streams(ends: dict[str, int]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, fd in enumerate((nothing, ends["stdout"], ends["stderr"])):
        os.dup2(fd, target)
        os.close(fd)
    for fd, name in ((1, "stdout"), (2, "stderr")):
        raw = io.FileIO(fd, "w", closefd=False)
        text = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace")
        text.reconfigure(line_buffering=True)
        setattr(sys, name, text)


def _outcome(job: Job, rank: int, folder: str) -> Outcome:
    try:
        job.settle()
        module, _, name = job.body.partition(":")
        body = getattr(sys.modules[module], name)
        return Outcome(rank, "returned", value=body(job, rank, folder))
    except BaseException as error:
        return raised(rank, error)


def raised(rank: int, error: BaseException) -> Outcome:
    """The outcome of a rank whose function raised, its traceback without our own frames."""
    cause = "".join(traceback.format_exception_only(error)).strip()
    frames = error.__traceback__
    ours = (__name__, __name__.replace("nursery", "world"))
    while frames is not None and frames.tb_frame.f_globals.get("__name__") in ours:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    return Outcome(rank, "raised", cause, text.strip(), time=time.monotonic())
