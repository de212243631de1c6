"""A store's face over plain memory: the optimizer's state on the host, and no disk."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from weft.run.offload.checks import check_into, check_name, check_tensor


class Memory:
    """Tensors by name in the host's memory, where an optimizer on them is ZeRO-Offload.

    What weft.run.offload.Store does with files, without copies: `read` returns the very tensor
    that is kept, `write` with `own` keeps the very tensor that it is given. Nothing outlives the
    program, so there is no state to go back to, and `flush` has nothing to do.

    Ren et al. 2021, section 4.
    """

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}
        self._tensors: dict[str, Tensor] = {}
        self.read_bytes = self.written_bytes = 0

    def write(self, name: str, tensor: Tensor, own: bool = False) -> None:
        """Keep a copy of a tensor, or with `own` itself, in the host's memory."""
        tensor = check_tensor(check_name(name), tensor)
        self._tensors[name] = tensor.to("cpu", copy=not own)

    def prefetch(self, name: str, wait: bool = True) -> None:
        """Nothing: all is here."""
        self._known(name)

    def read(self, name: str, into: Tensor | None = None) -> Tensor:
        """The tensor that is kept, or `into` with its numbers."""
        kept = self._known(name)
        return kept if into is None else check_into(into, name, kept.shape, kept.dtype).copy_(kept)

    def delete(self, name: str) -> None:
        """Remove a tensor."""
        self._known(name)
        del self._tensors[name]

    def flush(self) -> None:
        """Nothing: there is no disk to wait for."""

    def _known(self, name: str) -> Tensor:
        if check_name(name) not in self._tensors:
            count = len(self._tensors)
            raise ValueError(f"name is {name!r}, must be one of the store's {count} tensors")
        return self._tensors[name]

    @property
    def held(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)
