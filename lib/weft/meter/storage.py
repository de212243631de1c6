"""Bytes of the storages that are alive, among those it was shown."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from threading import RLock
from typing import Any

import torch

storage_of = torch.Tensor.untyped_storage  # as it is while no meter watches it
LIFT_FRESH = torch.ops.aten.lift_fresh.default  # how torch.tensor(data) appears
SETS = frozenset({  # give a tensor a storage, which no operation need have made
    torch.ops.aten.set_.source_Storage,
    torch.ops.aten.set_.source_Storage_storage_offset,
})  # fmt: skip


class Storages:
    """Knows each storage it was shown until the last tensor that uses it is gone.

    Views share a storage, which counts once and whole: a view keeps all of it alive. `.now` is
    the sum of the bytes alive, `.peak` the largest `.now` so far.
    """

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._lock = RLock()  # a second thread may make and free tensors beside ours
        self._known: dict[int, tuple[weakref.ref, int]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage from now until it is freed."""
        storage = storage_of(tensor)
        key, size = storage._cdata, storage.nbytes()

        def freed(_: Any, key: int = key) -> None:
            with self._lock:
                self.now -= self._known.pop(key)[1]

        with self._lock:
            if key in self._known:
                reference, before = self._known[key]
                self._known[key] = reference, size
                self.now += size - before  # it may have been resized
            else:
                self._known[key] = weakref.ref(storage, freed), size
                self.now += size
            self.peak = max(self.peak, self.now)

    def see(self, tensor: torch.Tensor) -> None:
        """Count a known storage with its new size, if an operation has resized it."""
        storage = storage_of(tensor)
        known = self._known.get(storage._cdata)
        if known is not None and known[1] != storage.nbytes():
            self.add(tensor)

    def hold(self, count: int) -> None:
        """Count so many bytes more that no storage has, or fewer."""
        with self._lock:
            self.now += count
            self.peak = max(self.peak, self.now)

    def look(self) -> None:
        """See which storages were resized by something other than an operation."""
        with self._lock:
            for key, (reference, before) in list(self._known.items()):
                storage = reference()
                if storage is not None and storage.nbytes() != before:
                    self._known[key] = reference, storage.nbytes()
                    self.now += storage.nbytes() - before
            self.peak = max(self.peak, self.now)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return storage_of(tensor)._cdata in self._known


def tensors(*values: Any) -> Iterator[torch.Tensor]:
    """The tensors with memory of their own among nested arguments or results."""
    for value in values:  # torch.utils._pytree would take longer than the operation does
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided:
                if not value.is_meta and not _is_fake(value):
                    yield value
            elif value.layout in PARTS:
                yield from tensors(*(getattr(value, part)() for part in PARTS[value.layout]))
            elif value.layout is torch._mkldnn:
                raise ValueError("layout is torch._mkldnn, which hides its memory: must be another")
        elif isinstance(value, list | tuple):
            yield from tensors(*value)
        elif isinstance(value, dict):
            yield from tensors(*value.values())


def _is_fake(tensor: torch.Tensor) -> bool:
    """A tensor that claims a device and has no memory, by which torch tries out shapes."""
    return type(tensor) is not torch.Tensor and storage_of(tensor).device.type == "meta"


BY_ROW = "crow_indices", "col_indices", "values"
BY_COLUMN = "ccol_indices", "row_indices", "values"
PARTS = {  # of a sparse tensor: where its memory is
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: BY_ROW,
    torch.sparse_bsr: BY_ROW,
    torch.sparse_csc: BY_COLUMN,
    torch.sparse_bsc: BY_COLUMN,
}


def new(func: Any, args: Any, kwargs: Any, result: Any) -> list[torch.Tensor]:
    """The tensors in an operation's result whose storage came from no argument.

    lift_fresh and set_ return an argument, which is new.
    """
    if func is LIFT_FRESH or func in SETS:
        return list(tensors(result))
    old = {storage_of(tensor)._cdata for tensor in tensors(args, kwargs)}
    return [t for t in tensors(result) if storage_of(t)._cdata not in old]
