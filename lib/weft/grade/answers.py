"""The grader's side of an answer: call it in its own process, take back plain data."""

import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from weft.grade import confine, data
from weft.grade.worker import MOST, send
from weft.plan.schedule import Plan

START = 120  # seconds that the small process may take to import what it hands on
PRINTED = 400  # characters of an answer's output that are kept


class AnswerError(Exception):
    """The answer raised, or returned what is not data. `.type` names the exception."""

    def __init__(self, text: str, type: str = ""):
        super().__init__(text)
        self.type = type


class Stopped(BaseException):
    """The answer cannot be asked again: not written, out of time, or its process has ended.

    Not an Exception, so that a property test reports it at once and does not try to shrink it.
    """


class Workshop:
    """The small process that forks one answer process per test."""

    def __init__(self, answers: Path, probe: Path, scratch: Path):
        self.arguments = [str(answers), str(probe), str(scratch)]
        self.scratch = scratch
        self.process: subprocess.Popen | None = None
        self.owes = False  # whether it will still say how the last answer process ended

    def start(self) -> None:
        """Start the small process, unless it is there: this may take seconds, a fork does not.

        Where a time limit struck before it was heard out, what it says next would be taken for
        another process's, so another takes its place.
        """
        if self.process is None or self.process.poll() is not None or self.owes:
            self._start()

    def fork(self, *handles: int) -> int:
        """A fresh answer process that holds these file descriptors; its process id."""
        self.start()
        self.owes = True
        try:
            socket.send_fds(self.control, [b"!"], handles)
            return int.from_bytes(self._read(), "big")
        except (OSError, EOFError):
            raise Stopped("the answer's process could not be started") from None

    def status(self) -> int | None:
        """How the last answer process ended, once everything below this one has been killed."""
        if not self.owes:
            return None
        try:
            code = int.from_bytes(self._read(), "big", signed=True)
            self.owes = False
            return code
        except (OSError, EOFError):
            self.close()  # what it says later must not be taken for another process's
            return None

    def end_children(self, child: int) -> None:
        """Kill the answer process and all that it started."""
        if self.process is not None:
            confine.end_descendants(self.process.pid, group=child)

    def close(self) -> None:
        """End the small process too."""
        if self.process is not None:
            if self.process.poll() is None:
                confine.end_descendants(self.process.pid)
                self.process.kill()
            self.process.wait()
            self.control.close()
            self.process, self.owes = None, False

    def _start(self) -> None:
        self.close()
        self.control, theirs = socket.socketpair()
        self.control.settimeout(START)
        environment = os.environ | {
            "TMPDIR": str(self.scratch),
            "TRITON_CACHE_DIR": str(self.scratch / "triton"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        start = "from weft.grade.worker import main; main()"
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", start, str(theirs.fileno()), *self.arguments],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        try:
            self._read()  # READY
        except (OSError, EOFError):
            raise Stopped("the answers' process could not be started") from None
        self.control.settimeout(20)

    def _read(self) -> bytes:
        got = self.control.recv(8, socket.MSG_WAITALL)
        if len(got) < 8:
            raise EOFError
        return got


class Answers:
    """The answers as one test sees them: `answers.name(*args)` runs in the answer's process.

    `answers.probe.name(*args)` runs the probe's function there, with the answers' module first.
    The process starts at the first call. `.asked` is the last call as text, `.printed` the
    beginning of what the answer has written to its output.
    """

    def __init__(self, workshop: Workshop, home: str = "answers", main: "Answers | None" = None):
        self._workshop, self._home, self._main = workshop, home, main or self
        self._channel: socket.socket | None = None
        self._wait = self._printed = None
        self._child = 0
        self._buffer = bytearray()
        self.asked = self.printed = ""

    @property
    def probe(self) -> "Answers":
        """The probe's functions instead of the answers'."""
        return Answers(self._workshop, "probe", self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._main._call(self._home, name, args, kwargs)

    def _call(self, home: str, name: str, args: tuple, kwargs: dict) -> Any:
        given = [_shown(x) for x in args] + [f"{k}={_shown(v)}" for k, v in kwargs.items()]
        self.asked = f"{name}({', '.join(given)})"
        if len(self.asked) > 200:
            self.asked = self.asked[:200] + "…"
        if self._channel is None:
            self._open()
        ticket = secrets.token_hex(8)
        try:
            send(self._channel, data.dumps([ticket, home, name, list(args), kwargs]))
            sort, value = self._await(ticket)
        except OSError:
            raise self._lost() from None
        return self._take(sort, value)

    def _open(self) -> None:
        self._channel, theirs = socket.socketpair()
        printed, writes = os.pipe()
        self._printed = os.fdopen(printed, "rb", buffering=0)
        try:
            self._child = self._workshop.fork(theirs.fileno(), writes)
        except BaseException:  # the time limit may strike here too
            self._workshop.close()
            self._channel.close()
            self._printed.close()
            self._channel = None
            raise
        finally:
            theirs.close()
            os.close(writes)
        self._wait = selectors.DefaultSelector()
        self._wait.register(self._channel, selectors.EVENT_READ, "reply")
        self._wait.register(self._printed, selectors.EVENT_READ, "printed")

    def _await(self, ticket: str) -> tuple[str, Any]:
        """The reply to this ticket; an answer that forks may send others, which are dropped."""
        while True:
            ready = {key.data for key, _ in self._wait.select()}
            if "printed" in ready:
                self._keep_printed()
            if "reply" not in ready:
                continue
            got = self._channel.recv(1 << 20)
            if not got:
                raise self._lost()
            self._buffer += got
            while (reply := self._frame()) is not None:
                if isinstance(reply, list) and len(reply) == 3 and reply[0] == ticket:
                    return reply[1], reply[2]

    def _frame(self) -> Any:
        if len(self._buffer) < 8:
            return None
        size = int.from_bytes(self._buffer[:8], "big")
        if size > MOST:
            self.end()
            raise Stopped(f"{self.asked} sent more than {MOST >> 20} MiB")
        if len(self._buffer) < 8 + size:
            return None
        frame = bytes(self._buffer[8 : 8 + size])
        del self._buffer[: 8 + size]
        try:
            return data.loads(frame)
        except ValueError as error:
            raise AnswerError(f"{self.asked} returned what is {error}") from None

    def _keep_printed(self) -> None:
        got = self._printed.read(1 << 16)
        if not got:
            self._wait.unregister(self._printed)
        if len(self.printed) < PRINTED:
            self.printed = (self.printed + got.decode(errors="replace"))[:PRINTED]

    def _take(self, sort: str, value: Any) -> Any:
        if sort == "value":
            return value
        if sort == "unfit":
            raise AnswerError(f"{self.asked} returned {value}, which is not plain data")
        name, text, line = value
        where = f" (answers.py, line {line})" if isinstance(line, int) else ""
        error = f"{name}: {text}{where}" if text else f"{name}{where}"
        if sort == "unwritten":
            raise Stopped("not written yet")
        if sort == "missing":
            raise Stopped(str(text))
        if sort == "import":
            raise Stopped(f"answers.py cannot be imported: {error}")
        raise AnswerError(f"{self.asked} raised {error}", type=str(name))

    def _lost(self) -> Stopped:
        """What to say when the connection is gone."""
        code = self.end()
        if code is None or code == -signal.SIGKILL:
            return Stopped(f"{self.asked} lost its process, or its connection to the grader")
        how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        return Stopped(f"{self.asked} ended its process {how}")

    def end(self) -> int | None:
        """Kill the answer's process and everything that it started; how the process had ended."""
        if self._channel is None:
            return None
        self._workshop.end_children(self._child)
        for part in (self._wait, self._printed, self._channel):
            if part is not None:  # the time limit may have struck before it was made
                part.close()
        self._channel = None
        self._buffer.clear()
        return self._workshop.status()


def _shown(value: Any) -> str:
    return f"{value.name}(p={value.p}, m={value.m})" if isinstance(value, Plan) else repr(value)
