"""The measuring process's side of an answer: the tensors are here, and every use of them.

A probe runs here, with its meters, and calls the answer's functions as if they were its own. What
it hands over stays here. The answer has names of tensors, and each torch function that it calls on
one is done here, in the probe's thread, within the meters that the probe has entered: what an
answer computes is counted where the answer cannot reach. Numbers may leave, for `if` and `range`,
but not so many that a tensor could be carried away by them.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any
from weakref import WeakValueDictionary

from weft.grade.bridge import Bridge, Far, Raised, Tampered, far
from weft.grade.confine import MEMORY
from weft.process.forkserver import Forkserver
from weft.process.job import Job

# Numbers that may leave: so many of each tensor that is handed over, and no more than half of its
# elements, and SPARE more. A maximum and a sum of each tile are fewer; the tile itself is more.
OF_EACH, SPARE = 4, 256


class Answer(Bridge):
    """An answer's functions, called from the measuring process: `answer.name(*args)`.

    Raised where the function raises, Gone where its process has ended.
    """

    def __init__(self, clean: Forkserver, paths: list[str], printed: int) -> None:
        """`clean` forks processes that know nothing of what is measured; `paths` as in guest.py."""
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self.theirs: WeakValueDictionary[int, Far] = WeakValueDictionary()
        self.spare = self.numbers_left = SPARE  # inf where a probe counts nothing of tensors
        self.lending = False  # what tensors are named now, the answer is given
        self.gives = False  # what is asked for is a call of ours, whose results are given as well
        self.given: set[int] = set()  # their numbers
        self.learned: Any = None  # where torch is there: watch.Learned, while the answer runs
        self.doing = ""  # what the answer asked for last, and where
        self.clean, self.paths, self.printed = clean, paths, printed
        self.file = Path(paths[0])
        with theirs:
            job = Job("weft.grade.guest:serve", json.dumps(paths).encode())
            self.running = clean.start(job, theirs.fileno(), printed)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.run(name, args, kwargs)

    def run(self, name: str, args: tuple, kwargs: dict) -> Any:
        """What the answer's function of that name gives."""
        self.numbers_left = self.spare
        if "torch" not in sys.modules:
            return self.ask("run", name, args, kwargs)
        from weft.grade.watch import Learned

        with nullcontext(self.learned) if self.learned else Learned() as learned:
            self.learned, before = learned, self.learned
            try:
                return self.ask("run", name, args, kwargs)
            finally:
                self.learned = before

    def end(self) -> None:
        """Kill the answer's process and all that it started."""
        self.channel.close()
        self.running.close()

    # --- what an answer asks for ------------------------------------------------------------------

    def _reply(self, ticket: int, what: Any) -> None:
        before, self.gives = self.gives, list(what)[:1] == ["call"]  # as sram.load does
        try:
            super()._reply(ticket, what)
        finally:
            self.gives = before

    def do(self, kind: str, *content: Any) -> Any:
        """A torch function, a call of something handed over, or one of its attributes."""
        *asked, self.doing = content
        try:
            what = {"torch": self._torch, "call": self._call, "get": self._get}[kind](*asked)
        except (KeyError, TypeError):
            raise Tampered(f"what asks for {str(kind)[:20]!r} as no answer can") from None
        before = self.learned.count if self.learned else 0
        try:
            result = what()
        except Exception as error:
            self._let_out(str(error), before)
            raise
        if kind == "call" or (kind == "torch" and not tells_form(asked[0])):
            self._let_out(result, before)
        return result

    def _get(self, thing: Any, name: str) -> Callable[[], Any]:
        if name not in offers(thing):
            raise Tampered(f"a use of {name!r} of a {type(thing).__name__}, which is not offered")
        return lambda: getattr(thing, name)

    def _call(self, thing: Any, name: str, args: list, kwargs: dict) -> Callable[[], Any]:
        if f"{name}()" not in offers(thing):
            raise Tampered(f"a call of {name!r} of a {type(thing).__name__}, which is not offered")
        method = thing if name == "__call__" else getattr(thing, name)
        return lambda: method(*args, **kwargs)

    def _torch(self, name: str, args: list, kwargs: dict, grad: bool) -> Callable[[], Any]:
        from weft.grade.torch_calls import functions

        function = functions().get(name)
        if function is None:
            raise Tampered(f"a call of {name!r}, which is not offered")
        return lambda: self._computed(name, function, args, kwargs, grad)

    def _computed(
        self, name: str, function: Callable[..., Any], args: list, kwargs: dict, grad: bool
    ) -> Any:
        import torch

        import weft.grade.watch as watch

        used = list(watch.inside(args, kwargs))
        if any(isinstance(x, Far) for x in used):
            raise PermissionError(f"{name} takes no function of yours while you are graded")
        tensors = [x for x in used if isinstance(x, torch.Tensor)]
        given = [x for x in tensors if self.numbers.get(id(x)) in self.given]
        try:
            with watch.in_place(tensors, given), torch.set_grad_enabled(bool(grad)):
                result = function(*args, **kwargs)
        except RuntimeError as error:
            if "can't allocate memory" not in str(error):
                raise
            most = f"{MEMORY >> 30} GiB that an answer may have"
            raise MemoryError(f"{name} asks for more memory than the {most}") from None
        watch.dense(result)
        last = name.rpartition(".")[2]
        if last.removeprefix("new_").startswith("empty"):
            watch.blank(result)
        return result

    def _let_out(self, result: Any, before: int) -> None:
        """Count the numbers that the answer learns of a result, and by what was done for it."""
        if "torch" not in sys.modules:
            return
        from weft.grade.watch import numbers

        by_doing = self.learned.count - before if self.learned else 0
        self.numbers_left -= max(numbers(result), by_doing)
        if self.numbers_left < 0:
            raise PermissionError(
                "too many numbers are taken out of tensors into Python: compute with torch, on"
                " tensors, and take out sizes and single results alone"
            )

    # --- references -------------------------------------------------------------------------------

    def _say(self, kind: str, ticket: int, content: Any) -> None:
        self.lending = kind == "ask" or self.gives
        super()._say(kind, ticket, content)

    def forget(self, number: int, times: int) -> None:
        super().forget(number, times)
        if number not in self.held:
            self.given.discard(number)

    def refer(self, value: Any) -> tuple[str, Any] | None:
        if isinstance(value, Far):
            return "yours", value._number
        if "torch" in sys.modules:
            from weft.grade.torch_calls import described, is_tensor

            if is_tensor(value):
                number = self.export(value)
                if self.lending and self.times[number] == 1:
                    self.given.add(number)
                    self.numbers_left += min(OF_EACH, value.numel() // 2)
                kind = str(value.dtype).removeprefix("torch.")
                return "tensor at", [number, kind, list(value.shape)]
            if (found := described(value, self.refer)) is not None:
                return found
        if offered := offers(value):
            name = getattr(value, "__name__", type(value).__name__)
            return "object", [self.export(value), name, list(offered)]
        return None

    def resolve(self, kind: str, of: Any) -> Any:
        if kind == "yours":
            if not isinstance(of, int) or of not in self.held:
                raise Tampered(f"the name {str(of)[:20]}, under which nothing was handed over")
            return self.held[of]
        if kind == "object":
            number = of[0]
            thing = self.theirs.get(number)
            if thing is None:
                thing = self.theirs[number] = far(self, int(number), "function", ["__call__()"])
            thing._times += 1
            return thing
        from weft.grade.torch_calls import value_of

        return value_of(kind, of, self.resolve)

    def raised(self, sort: str, name: str, words: str, line: int | None) -> BaseException:
        if sort == "unwritten":
            return NotImplementedError()
        return Raised(str(sort), str(name), str(words), line if isinstance(line, int) else None)


def tells_form(name: str) -> bool:
    """Whether a torch function tells of a tensor's form and not of its numbers."""
    from weft.grade.torch_calls import SIZES

    return name.endswith("__get__") or name.rpartition(".")[2] in SIZES


def offers(value: Any) -> tuple[str, ...]:
    """What an answer may use of a thing that it was handed: its class's OFFERS, or a call."""
    if isinstance(value, FunctionType | MethodType | BuiltinFunctionType | type):
        return ("__call__()",)
    return tuple(getattr(type(value), "OFFERS", ()))
