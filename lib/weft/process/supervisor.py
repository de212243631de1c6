"""One launch: fork the ranks, hear them out, leave nothing running.

The nursery adopts every process that a rank leaves behind (PR_SET_CHILD_SUBREAPER) and is not
done until it has no child left. It ends the ranks when all have returned, when one has failed,
when the time is up, or when the caller is gone: its socket closes then, whatever killed it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import shutil
import signal
import socket
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

from weft.process.job import LENGTH, Job, Outcome, receive, send
from weft.process.rank import as_child, be_rank, prctl, stack_file

GRACE = 0.2  # how long after the first failure others may report theirs: it may not be the cause


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
            head = LENGTH.size
            whole = len(self.result) >= head and LENGTH.unpack(self.result[:head])[0]
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


class Nursery:
    """One launch: fork the ranks, hear them out, leave nothing running."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.children: list[_Child] = []
        self._running: set[int] = set()  # a pid that has been reaped may be another's
        self.selector = selectors.DefaultSelector()

    def run(self) -> None:
        job = receive(self.channel)
        if job is None:
            return
        prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
        self.folder = ""
        try:
            self.folder = tempfile.mkdtemp(prefix="weft-")
            outcomes = self._watch(job)
            self._end_all()
            self._forward_the_rest()
            send(self.channel, ("ended", outcomes))
        except (_CallerGone, BrokenPipeError, ConnectionResetError):
            pass
        except Exception:  # no process or file left to be had, say
            self._end_all()
            send(self.channel, ("broken", traceback.format_exc()))
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
        send(self.channel, ("begun", self.folder))
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
            as_child(lambda: be_rank(job, rank, ends, self.folder))
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
            send(self.channel, ("wrote", child.rank, stream, data))
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
        files = {child.rank: Path(stack_file(self.folder, child.rank)) for child in running}
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
