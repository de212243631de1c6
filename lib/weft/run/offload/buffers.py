"""Buffers for direct I/O: aligned to pages, used again, and within a budget that is kept."""

import mmap
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import RLock

import torch
from torch import Tensor

from weft.run.offload.faults import OverBudget

PAGE = 4096  # what direct I/O wants of addresses, offsets and lengths


def padded(length: int) -> int:
    """Bytes rounded up to whole pages.

    >>> [padded(n) for n in (0, 1, 4096, 4097)]
    [0, 4096, 4096, 8192]
    """
    return -(-length // PAGE) * PAGE


def tensor_of(buffer: memoryview) -> Tensor:
    """The bytes of a buffer as a tensor, which keeps it as long as it or a view is there."""
    return torch.frombuffer(buffer, dtype=torch.uint8)


def fill(buffer: memoryview, data: Tensor) -> None:
    """Copy bytes, from any device, to the beginning of a buffer.

    Those in the host's memory go in one thread. Torch's copy deals 4 MiB to all of its
    threads, and on a busy machine whoever has to wait for the last of them loses by it.
    """
    if data.device.type == "cpu":
        buffer[: len(data)] = memoryview(data.numpy())
    else:
        tensor_of(buffer)[: len(data)].copy_(data)


class Pool:
    """Buffers of whole pages, never more bytes of them than `budget`.

    A buffer comes back by itself when nobody holds it any more: neither the thread that
    reads or writes it, nor a tensor made of it, nor a view of that. Then it is handed
    out again, since fresh memory costs a page fault for every page. `held` are the
    bytes that somebody holds, `peak` the most of them so far.
    """

    def __init__(self, budget: int):
        self.budget = budget
        self.held = self.peak = 0
        self._idle: dict[int, list[mmap.mmap]] = {}
        self._back: SimpleQueue = SimpleQueue()  # may be put to while memory is collected
        self._out: dict[int, tuple[weakref.ref, int]] = {}  # by address; how much was asked for
        self._lock = RLock()

    def take(self, length: int, wait: Callable[[], bool]) -> memoryview:
        """A buffer for so many bytes; where there is no room `wait()` has to make some.

        `wait` returns False where nothing will come back by itself: then OverBudget.
        """
        size = padded(length)
        while True:
            with self._lock:
                buffer = self._try(size, length)
            if buffer is not None:
                return buffer
            if not wait():
                with self._lock:
                    buffer = self._try(size, length)  # the last one may just have come back
                if buffer is not None:
                    return buffer
                raise OverBudget(
                    f"the budget of {self.budget} bytes has no room for {size} more: tensors that "
                    f"were read hold {self.held}, let go of some or give a larger budget"
                )

    def owner(self, tensor: Tensor) -> memoryview | None:
        """The buffer that a tensor fills to the byte, if it is one of ours."""
        found, length = self._out.get(tensor.data_ptr(), (lambda: None, 0))
        return found() if tensor.nbytes == length else None

    def now(self) -> int:
        """Bytes that somebody holds."""
        with self._lock:
            self._collect()
            return self.held

    def _try(self, size: int, length: int) -> memoryview | None:
        self._collect()
        pages = self._idle[size].pop() if self._idle.get(size) else None
        if pages is None:
            for other in list(self._idle):  # of another size: in the way
                while self._alive() + size > self.budget and self._idle[other]:
                    self._idle[other].pop()
            if self._alive() + size > self.budget:
                return None
            pages = mmap.mmap(-1, size)
        self.held += size
        self.peak = max(self.peak, self.held)
        buffer = memoryview(pages)
        address = tensor_of(buffer).data_ptr()
        self._out[address] = weakref.ref(buffer), length
        weakref.finalize(buffer, self._back.put, (pages, address)).atexit = False
        return buffer

    def _collect(self) -> None:
        """Take back what nobody holds any more."""
        while True:
            try:
                pages, address = self._back.get_nowait()
            except Empty:
                return
            del self._out[address]
            self.held -= len(pages)
            self._idle.setdefault(len(pages), []).append(pages)

    def _alive(self) -> int:
        return self.held + sum(size * len(pages) for size, pages in self._idle.items())
