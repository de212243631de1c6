"""Losses on their way from rank 0, which may be another process, to whoever started the ranks."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Listener
from threading import Thread

LINES = 20  # how many losses are printed at most
REPORT = "=qd"  # step, loss

Report = Callable[[int, float], None]


class Lines:
    """Prints some of the losses, and the last; `.shown` has the steps that were reported."""

    def __init__(self, steps: int):
        self.steps, self.every = steps, max(1, steps // LINES)
        self.shown: list[int] = []

    def __call__(self, step: int, mean: float) -> None:
        self.shown.append(step)
        if step % self.every == 0 or step == self.steps - 1:
            digits = len(str(self.steps))
            print(f"step {step:{digits}}  loss {mean:.4f} nats per byte", flush=True)


@contextmanager
def listening(show: Report) -> Iterator[str]:
    """A door at which rank 0 reports while it runs; each report is shown here, in the parent."""
    with Listener() as listener:
        thread = Thread(target=_listen, args=(listener, show))
        thread.start()
        try:
            yield listener.address
        finally:
            with suppress(OSError):  # if nobody came, this lets the thread go
                Client(listener.address).close()
            thread.join()


@contextmanager
def reporting(door: str) -> Iterator[Report]:
    """On rank 0: what is called with each step and its loss."""
    with Client(door) as line:
        yield lambda step, mean: line.send_bytes(struct.pack(REPORT, step, mean))


def _listen(listener: Listener, show: Report) -> None:
    with listener.accept() as line, suppress(EOFError, ConnectionError):
        while True:
            show(*struct.unpack(REPORT, line.recv_bytes()))
