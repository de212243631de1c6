"""The grader's side of an answer: call it in its own process, take back plain data."""

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
from pathlib import Path
from typing import Any

from weft.grade import data
from weft.grade.worker import MOST
from weft.plan.schedule import Plan
from weft.process.forkserver import Forkserver
from weft.process.job import Job
from weft.process.messages import Frames, send

PARTING = 1.0  # seconds to hear how a process ended that has closed its connection
PRINTED = 400  # characters of an answer's output that are kept


class AnswerError(Exception):
    """The answer raised, or returned what is not data. `.type` names the exception."""

    def __init__(self, text: str, type: str = ""):
        super().__init__(text)
        self.type = type


class AnswerStopped(BaseException):
    """The answer cannot be asked again: not written, out of time, or its process has ended.

    Not an Exception, so that a property test reports it at once and does not try to shrink it.
    """


class Answers:
    """The answers as one test sees them: `answers.name(*args)` runs in the answer's process.

    `answers.probe.name(*args)` runs the probe's function there, with the answers' module first.
    The process starts at the first call. `.asked` is the last call as text, `.printed` the
    beginning of what the answer has written to its output.
    """

    def __init__(
        self,
        server: Forkserver,
        paths: tuple[Path, Path, Path],
        home: str = "answers",
        main: "Answers | None" = None,
    ):
        """`paths`: the answers' file, the probe's, and the folder an answer may write to."""
        self._server, self._paths = server, paths
        self._home, self._main = home, main or self
        self._frames = Frames(MOST)
        self._running = self._channel = self._printed = self._wait = None
        self.asked = self.printed = ""

    @property
    def probe(self) -> "Answers":
        """The probe's functions instead of the answers'."""
        return Answers(self._server, self._paths, "probe", self)

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
        paths = json.dumps([str(path) for path in self._paths])
        self._channel, theirs = socket.socketpair()
        printed, writes = os.pipe()
        self._printed = os.fdopen(printed, "rb", buffering=0)
        self._wait = selectors.DefaultSelector()
        self._wait.register(self._channel, selectors.EVENT_READ, "reply")
        self._wait.register(self._printed, selectors.EVENT_READ, "printed")
        try:
            job = Job("weft.grade.worker:serve", paths.encode())
            self._running = self._server.start(job, theirs.fileno(), writes)
        finally:
            theirs.close()
            os.close(writes)

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
            for reply in map(self._plain, self._whole(got)):
                if isinstance(reply, list) and len(reply) == 3 and reply[0] == ticket:
                    return reply[1], reply[2]

    def _whole(self, got: bytes) -> list[bytes]:
        try:
            return self._frames.feed(got)
        except ValueError:
            self.end()
            raise AnswerStopped(f"{self.asked} sent more than {MOST >> 20} MiB") from None

    def _plain(self, reply: bytes) -> Any:
        try:
            return data.loads(reply)
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
            raise AnswerStopped("not written yet")
        if sort == "missing":
            raise AnswerStopped(str(text))
        if sort == "import":
            raise AnswerStopped(f"answers.py cannot be imported: {error}")
        raise AnswerError(f"{self.asked} raised {error}", type=str(name))

    def _lost(self) -> AnswerStopped:
        """What to say when the connection is gone."""
        code = None
        with contextlib.suppress(RuntimeError, OSError):
            (outcome,) = self._running.wait(PARTING) or (None,)
            code = outcome and outcome.code
        begun = self._running.folder
        self.end()
        if not begun:
            return AnswerStopped("the answer's process could not be started")
        if code is None or code == -signal.SIGKILL:
            return AnswerStopped(f"{self.asked} lost its process, or its connection to the grader")
        how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        return AnswerStopped(f"{self.asked} ended its process {how}")

    def end(self) -> None:
        """Kill the answer's process and everything that it started."""
        for part in (self._running, self._wait, self._printed, self._channel):
            if part is not None:  # the time limit may have struck before it was made
                part.close()
        self._running = self._channel = self._printed = self._wait = None
        self._frames = Frames(MOST)


def _shown(value: Any) -> str:
    return f"{value.name}(p={value.p}, m={value.m})" if isinstance(value, Plan) else repr(value)
