"""Memory as the interpreter keeps it: shared memory, tensors, barriers, and what is under way.

Each tile of shared memory knows who is reading it, whether a copy is landing in it, and whose
stores in it have not been fenced yet. Whoever touches it says so first.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor

from weft.kernels.gluon.interpreter.scheduler import BlockRun, Fault, Group


class Cell:
    """A tile's worth of shared memory: what is still reading it or writing it."""

    def __init__(self, name: str):
        self.name = name
        self.readers: list[str] = []
        self.landing = False
        self.unfenced: Group | None = None

    def read(self, who: str, ahead: bool) -> None:
        """Somebody reads; `ahead` of threads, so that their stores need a fence."""
        if self.landing:
            raise Fault(f"{who} reads {self.name} before it has landed")
        if ahead and self.unfenced:
            raise Fault(f"{who} reads what {self.unfenced.name} stored in {self.name}: no fence")

    def write(self, who: str, ahead: bool) -> None:
        """Somebody writes, and so nobody may be reading."""
        if self.readers:
            raise Fault(f"{who} writes {self.name} while {self.readers[0]} reads it")
        if self.landing:
            raise Fault(f"{who} writes {self.name} while a copy lands there")
        if ahead and self.unfenced:
            raise Fault(
                f"{who} writes over what {self.unfenced.name} stored in {self.name}: no fence"
            )


class Shared:
    """A view of shared memory. A box has 2 or 4 dims; one more in front counts boxes."""

    def __init__(self, block: BlockRun, data: Tensor, cells: list[Cell]):
        self.block, self.data, self.cells = block, data, cells
        self.dtype, self.shape = data.dtype, list(data.shape)

    def index(self, i: int) -> "Shared":
        if not 0 <= i < self.shape[0]:
            raise Fault(f"index {i} of shared memory with {self.shape[0]} tiles")
        return Shared(self.block, self.data[i], [self.cells[i]])

    def reshape(self, shape) -> "Shared":
        return Shared(self.block, self.data.view(list(shape)), self.cells)

    def permute(self, order) -> "Shared":
        return Shared(self.block, self.data.permute(*order), self.cells)

    def slice(self, start: int, length: int, dim: int = 0) -> "Shared":
        if not 0 <= start <= self.shape[dim] - length:
            raise Fault(f"slice of {length} from {start} on, of {self.shape[dim]}")
        return Shared(self.block, self.data.narrow(dim, start, length), self.cells)

    def rename(self, name: str) -> None:
        """Call its tiles name[0], name[1] …, or just that if it is one."""
        for i, cell in enumerate(self.cells):
            cell.name = f"{name}[{i}]" if len(self.cells) > 1 else name

    def load(self, layout=None) -> Tensor:
        for cell in self.cells:
            cell.read(self.block.now.name, ahead=False)
        return self.data.clone()

    def store(self, value: Tensor) -> None:
        for cell in self.cells:
            cell.write(self.block.now.name, ahead=False)
            cell.unfenced = self.block.now
        if list(value.shape) != self.shape or value.dtype != self.dtype:
            raise Fault(f"store of {value.dtype} {list(value.shape)} to {self.dtype} {self.shape}")
        self.data.copy_(value)


class Pointer:
    """An address, or a tensor of addresses, in the memory of one tensor."""

    def __init__(self, base: Tensor, offset):
        self.base, self.offset = base, offset

    def __add__(self, more) -> "Pointer":
        return Pointer(self.base, self.offset + more)

    def places(self, mask) -> tuple[Tensor, Tensor]:
        """Offsets into the base's memory, and which of them count; all that do lie inside."""
        offset = torch.as_tensor(self.offset).long()
        mask = torch.as_tensor(True if mask is None else mask).expand(offset.shape)
        if (mask & ((offset < 0) | (offset >= len(self.memory())))).any():
            raise Fault("an address lies outside of its tensor")
        return torch.where(mask, offset, 0), mask

    def memory(self) -> Tensor:
        """All elements from the first to the last of the tensor, as they lie."""
        steps = zip(self.base.shape, self.base.stride(), strict=True)
        return self.base.as_strided((1 + sum((size - 1) * step for size, step in steps),), (1,))


class Described:
    """A tensor as the copy engine knows it: cut into boxes, with zeros all around."""

    def __init__(self, desc):
        self.base, self.shape, self.strides = desc.base, list(desc.shape), list(desc.strides)
        box = list(desc.block_shape)
        nbytes = torch.Size(box).numel() * desc.base.element_size()
        self.block_type = SimpleNamespace(shape=box, nbytes=nbytes)
        self.dtype, self.layout = desc.base.dtype, desc.layout

    def box(self, at: Sequence[int]) -> tuple[Tensor, tuple[slice, ...]]:
        """What lies inside of the box at `at`, and where in the box that is."""
        whole = self.base.as_strided(self.shape, self.strides)
        inside, place = [], []
        for start, length, end in zip(at, self.block_type.shape, self.shape, strict=True):
            low, high = max(start, 0), max(min(start + length, end), max(start, 0))
            inside.append(slice(low, high))
            place.append(slice(low - start, high - start))
        return whole[tuple(inside)], tuple(place)


class Barrier:
    """A barrier in shared memory: its phase, and what still has to come for it to end."""

    def __init__(self, name: str, arrivals: int):
        self.name, self.arrivals = name, arrivals
        self.phase, self.missing, self.bytes = 0, arrivals, 0

    def arrive(self, who: str) -> None:
        if not self.missing:
            raise Fault(f"{who} arrives at {self.name}, which has all its arrivals already")
        self.missing -= 1
        self.settle()

    def settle(self) -> None:
        """End the phase if nothing is missing."""
        if not self.missing and not self.bytes:
            self.phase += 1
            self.missing = self.arrivals


class BarrierRow:
    """Barriers in a row."""

    def __init__(self, name: str, count: int, arrivals: int):
        self.shape = [count, 1]
        self.all = [Barrier(f"{name}[{i}]", arrivals) for i in range(count)]

    def index(self, i: int) -> Barrier:
        return self.all[i]

    def rename(self, name: str) -> None:
        """Call them name[0], name[1] …."""
        for i, bar in enumerate(self.all):
            bar.name = f"{name}[{i}]"


class Product:
    """A product on its way: computed when it is waited for, from what then lies in memory."""

    def __init__(self, who: str, a, b: Shared, acc: "Tensor | Product | None"):
        self.a, self.b, self.acc, self.value = a, b, acc, None
        self.shape, self.goes_on = [a.shape[0], b.shape[1]], False
        self.name = f"a product of {who}"
        self.cells = [*b.cells, *(a.cells if isinstance(a, Shared) else [])]
        for cell in self.cells:
            cell.read(self.name, ahead=True)
            cell.readers.append(self.name)

    def land(self) -> None:
        a = self.a.data if isinstance(self.a, Shared) else self.a
        self.value = a.float() @ self.b.data.float()
        if self.acc is not None:
            self.value += self.acc.value if isinstance(self.acc, Product) else self.acc
        for cell in self.cells:
            cell.readers.remove(self.name)


class TileStore:
    """A tile on its way out."""

    def __init__(self, who: str, desc: Described, at: Sequence[int], buf: Shared):
        self.name, self.desc, self.at, self.buf = f"a store of {who}", desc, at, buf
        for cell in buf.cells:
            cell.read(self.name, ahead=True)
            cell.readers.append(self.name)

    def land(self) -> None:
        inside, place = self.desc.box(self.at)
        inside.copy_(self.buf.data.view(self.desc.block_type.shape)[place])
        for cell in self.buf.cells:
            cell.readers.remove(self.name)


class Addition(TileStore):
    """A tile on its way out, to be added to what is there."""

    def land(self) -> None:
        inside, _ = self.desc.box(self.at)
        before = inside.clone()
        super().land()
        inside += before
