"""Bytes of tensors alive while something runs."""

from __future__ import annotations

from typing import Any

from .mode import Mode
from .storage import Storages, new, tensors


class live(Mode):
    """Within this context, count the bytes of the tensors that operations make: `.peak`, `.now`.

    Counted are storages made by torch operations of this thread, of the backward passes it starts
    and of threads that work for it: results, what autograd keeps of them, gradients. A storage
    counts once however many views it has, from the operation that made it until the last user is
    gone. What was there before the context, a kernel's scratch memory and the allocator's rounding
    do not count.

    A storage that an operation resized is counted anew when an operation next uses it. Some
    programs, FSDP2 among them, resize storages without any operation: with `resized=True` all
    storages that are alive are looked at before each operation, which takes longer.
    """

    def __init__(self, *, resized: bool = False) -> None:
        super().__init__()
        self._storages = Storages()
        self._resized = resized

    @property
    def now(self) -> int:
        """Bytes alive at this moment."""
        return self._storages.now

    @property
    def peak(self) -> int:
        """The most bytes that were alive at once."""
        return self._storages.peak

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._resized:
            self._storages.look()
        result = func(*args, **kwargs)
        for tensor in new(func, args, kwargs, result):
            self._storages.add(tensor)
        for tensor in tensors(args, kwargs):
            if tensor in self._storages:
                self._storages.add(tensor)  # an operation may have resized it
        return result
