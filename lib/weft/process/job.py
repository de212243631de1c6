"""What the processes of a launch tell each other: the job, how each rank ended, and how it is sent.

A message is its length and a pickle.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import pickle
import socket
import struct
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PATIENCE = 120.0  # for what should take moments: starting the server, ending killed processes
LENGTH = struct.Struct("!Q")


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


def send(channel: socket.socket, message: object) -> None:
    """Send a message whole, or raise that the other side has closed."""
    data = pickle.dumps(message)
    channel.sendall(LENGTH.pack(len(data)) + data)


def receive(channel: socket.socket) -> Any:
    """The next message, or None where the other side has closed."""
    head = _exactly(channel, LENGTH.size)
    body = head and _exactly(channel, *LENGTH.unpack(head))
    return pickle.loads(body) if body else None


def _exactly(channel: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = channel.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
