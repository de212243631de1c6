"""Who moves next in a block: its groups of warps, one at a time, and what is in flight.

Each group of warps is a thread that holds the baton or waits for it. Which of those that can go on
gets it next, and what lands in between, a seed decides.
"""

import random
import threading
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Protocol

import torch
from triton.experimental.gluon import language as gl
from triton.runtime.jit import JITFunction


class Fault(RuntimeError):
    """A kernel has broken a rule of the machine."""


class BarrierDeadlock(Fault):
    """Every group of warps waits, and nothing is under way that could end it."""


class BlockStopped(BaseException):
    """Ends the threads of a block that has failed."""


class Landing(Protocol):
    """What a group has under way: a product, or a store."""

    def land(self) -> None: ...


class Group:
    """Some warps of a block that go the same way: a thread, and what it has under way."""

    def __init__(self, name: str, body: Callable[[], object]):
        self.name, self.body = name, body
        self.go = threading.Semaphore(0)
        self.ready: Callable[[], bool] | None = None  # None: it can go on
        self.waits = ""
        self.done = False
        self.products: list[Landing] = []
        self.stores: list[Landing] = []
        self.copies: list[list] = [[]]  # groups of copies by threads; the last is not committed yet


class BlockRun:
    """One program: groups of warps, shared memory, and copies in flight."""

    def __init__(self, program: int, grid: int, dice: random.Random):
        self.program, self.grid, self.dice = program, grid, dice
        self.late = dice.choice((0.0, 0.5, 0.95))  # how often something lands only if it must
        self.groups: list[Group] = []
        self.flights: list[Callable[[], None]] = []  # what lands when called
        self.baton = threading.Semaphore(0)
        self.now: Group | None = None
        self.error: BaseException | None = None
        self.stopped = False
        self.words: dict[int, object] = {}  # id of a function or module -> what stands for it

    def run(
        self, kernel: JITFunction, args: list, constexprs: dict, words: Mapping[int, object]
    ) -> None:
        """Start the kernel in a first group and hand the baton round until all are done.

        `words` are what stands for functions and modules of Gluon, by their id.
        """
        self.words = dict(words)
        given = {name: self.spoken(value) for name, value in constexprs.items()}
        self.start("warps 0", lambda: self.spoken(kernel)(*args, **given))
        try:
            while not all(group.done for group in self.groups) and not self.error:
                self.turn()
        finally:
            self.stopped = True
            for group in self.groups:
                group.go.release()
        if self.error:
            raise self.error
        if self.flights:
            raise Fault(f"program {self.program} ends with {len(self.flights)} copies under way")

    def start(self, name: str, body: Callable[[], object]) -> Group:
        """A new group of warps."""
        group = Group(name, body)
        self.groups.append(group)
        threading.Thread(target=self.live, args=(group,), daemon=True).start()
        return group

    def live(self, group: Group) -> None:
        """A thread's life: wait for the baton, go through the body, say what went wrong."""
        group.go.acquire()
        try:
            if not self.stopped:
                with torch.no_grad():  # a thread does not inherit it
                    group.body()
                if group.products or group.stores or any(group.copies):
                    raise Fault(
                        f"{group.name} ends while its products, stores or copies are under way"
                    )
        except BlockStopped:
            return
        except BaseException as error:
            error.add_note(f"in {group.name} of program {self.program}")
            self.error = self.error or error
        group.done = True
        self.baton.release()

    def turn(self) -> None:
        """Let something land, or one group go on to its next word."""
        able = [g for g in self.groups if not g.done and (g.ready is None or g.ready())]
        if self.flights and (not able or self.dice.random() >= self.late):
            self.flights.pop(self.dice.randrange(len(self.flights)))()
        elif able:
            self.now = self.dice.choice(able)
            self.now.go.release()
            self.baton.acquire()
        else:
            waits = [f"{g.name} for {g.waits}" for g in self.groups if not g.done]
            raise BarrierDeadlock(f"program {self.program}: " + "; ".join(waits))

    def rest(self, ready: Callable[[], bool] | None = None, waits: str = "") -> None:
        """Called by a group: give the baton away until it may go on."""
        me = self.now
        me.ready, me.waits = ready, waits
        self.baton.release()
        me.go.acquire()
        if self.stopped:
            raise BlockStopped
        me.ready = None

    def spoken(self, function):
        """A kernel's function with this block's words in place of Gluon's."""
        if id(function) in self.words:
            return self.words[id(function)]
        if isinstance(function, gl.constexpr):
            return function.value
        if not isinstance(function, JITFunction):
            return function  # a number, a layout, or a word of Python's own
        plain = function.fn
        names: dict[str, object] = {"__builtins__": __builtins__}
        made = FunctionType(plain.__code__, names, plain.__name__, plain.__defaults__)
        made.__kwdefaults__ = plain.__kwdefaults__
        self.words[id(function)] = made
        for name in plain.__code__.co_names:
            if name in plain.__globals__:
                names[name] = self.spoken(plain.__globals__[name])
        return made
