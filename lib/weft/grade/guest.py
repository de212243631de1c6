"""The answer's side: its functions run here, on names of tensors that lie elsewhere.

A tensor that an answer is handed is a torch.Tensor in all that it can be asked and used for, and
has no memory: each torch function on it is done by the measuring process (host.py), which has the
numbers and the meters. What would carry numbers off, to numpy, lists or pointers, is refused at the
line that asks for it. Nothing that an answer does to its own process changes what is counted.
"""

from __future__ import annotations

import builtins
import faulthandler
import json
import socket
import sys
import time
from math import inf
from pathlib import Path
from typing import Any, NoReturn, TextIO
from weakref import WeakValueDictionary

from weft.grade.bridge import Bridge, Far, far
from weft.grade.worker import alone, explain, found, load, settle
from weft.process.job import Job


def serve(job: Job, rank: int, folder: str) -> NoReturn:
    """Lock this process in, then run the answer's functions as the measuring process asks."""
    connection, printed = job.files
    *paths, trace, every = [*json.loads(job.payload), "", ""][:5]
    answers, _, scratch = (Path(path) for path in paths)
    kept = [open(trace, "w")] if trace else []  # noqa: SIM115 (open as long as this process)
    settle(connection, printed, answers, scratch, *(file.fileno() for file in kept))
    with alone(), socket.socket(fileno=connection) as channel:
        Guest(channel, answers, *((file, float(every)) for file in kept)).serve()


class Guest(Bridge):
    """The answer's functions, and what they use of the measuring process."""

    def __init__(
        self, channel: socket.socket, answers: Path, trace: tuple[TextIO, float] | None = None
    ) -> None:
        """`trace` is a file that says where we are when nothing is asked for so many seconds."""
        super().__init__(channel)
        self.answers, self.module = answers, None
        self.trace, self.heard = trace, -inf
        self.theirs: WeakValueDictionary[int, Any] = WeakValueDictionary()
        if "torch" in sys.modules:
            from weft.grade.handles import everywhere

            everywhere(self)

    def do(self, kind: str, *content: Any) -> Any:
        """Run a function of the answer's, or one that it has handed over."""
        if kind == "call":
            function, _, args, kwargs = content
            return function(*args, **kwargs)
        name, args, kwargs = content
        self.hear()
        if self.module is None:
            self.module = load(self.answers, "answers")
        return found(self.module, name)(*args, **kwargs)

    def ask(self, *what: Any) -> Any:
        """As in Bridge, and say where in answers.py it is asked."""
        self.hear()
        return super().ask(*what, self.where())

    def hear(self) -> None:
        """Put off writing down where we are: frames are looked at while they run, and where they
        change just then the process may crash. So it is done only if nobody knows otherwise."""
        if self.trace is None:
            return
        file, every = self.trace
        if time.monotonic() - self.heard > every / 4:
            self.heard = time.monotonic()
            faulthandler.dump_traceback_later(every, repeat=True, file=file)

    def where(self) -> str:
        """The line of answers.py that runs, and the function it is in; empty for none."""
        frame, file = sys._getframe(2), str(self.answers)
        while frame is not None:
            if frame.f_code.co_filename == file:
                return f"answers.py, line {frame.f_lineno}, in {frame.f_code.co_name}"
            frame = frame.f_back
        return ""

    def refer(self, value: Any) -> tuple[str, Any] | None:
        if isinstance(value, Far):
            return "yours", value._number
        if "torch" in sys.modules:
            from weft.grade.handles import Handle
            from weft.grade.torch_calls import described

            if isinstance(value, Handle):
                return "yours", value.number
            if (known := described(value, self.refer)) is not None:
                return known
        if callable(value) and not isinstance(value, type):
            return "object", [self.export(value), "function", ["__call__()"]]
        return None

    def resolve(self, kind: str, of: Any) -> Any:
        if kind == "yours":
            return self.held[of]
        if kind in ("object", "tensor at"):
            number = of[0]
            thing = self.theirs.get(number)
            if kind == "object":
                if thing is None:
                    thing = self.theirs[number] = far(self, *of)
                thing._times += 1
                return thing
            from weft.grade.handles import renewed

            self.theirs[number] = thing = renewed(self, thing, *of)
            return thing
        from weft.grade.torch_calls import value_of

        return value_of(kind, of, self.resolve)

    def explain(self, error: BaseException) -> tuple[str, str, str, int | None]:
        sort, (name, words, line) = explain(error, self.answers, self.module is not None)
        return sort, name, words, line

    def raised(self, sort: str, name: str, words: str, line: int | None) -> BaseException:
        """An exception of the same name, so that an answer may catch it."""
        known = getattr(builtins, name, None)
        if not (isinstance(known, type) and issubclass(known, Exception)):
            known = type(name, (RuntimeError,), {})
        return known(words)
