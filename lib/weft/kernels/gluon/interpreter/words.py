"""What each word of `weft.kernels.gluon` does in an interpreted block, and the part of Gluon's
language that the kernels use, on torch tensors.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from weft.kernels.gluon import words as gluon
from weft.kernels.gluon.interpreter.memory import (
    Addition,
    Barrier,
    BarrierRow,
    Cell,
    Described,
    Pointer,
    Product,
    Shared,
    TileStore,
)
from weft.kernels.gluon.interpreter.scheduler import BlockRun, Fault, Group

POISON = 0xFF  # in every byte: NaN in all floating point formats


class Words:
    """What each word does in a block."""

    def __init__(self, block: BlockRun):
        self.block = block
        self.made = 0
        self.cells: list[Cell] = []

    def table(self) -> Iterator[tuple[object, object]]:
        """Pairs of Gluon's word and ours."""
        yield gluon.gl, Language(self)
        for name in (
            "arrive", "barriers", "copy_commit", "copy_rows", "copy_wait", "expect", "fence",
            "laid_out_as", "opaque", "pack", "sync", "tma_add", "tma_load", "tma_store",
            "tma_store_wait", "unpack", "wait", "wgmma", "wgmma_go_on", "wgmma_wait",
            "where_at_most", "workers",
        ):  # fmt: skip
            yield getattr(gluon, name), getattr(self, name)

    @property
    def me(self) -> Group:
        return self.block.now

    def workers(self, functions, warps, registers) -> None:
        (first, args), *others = functions
        if len(others) != len(warps) or len(others) != len(registers):
            raise Fault(
                f"{len(others)} workers, {len(warps)} warp counts, {len(registers)} of registers"
            )
        for _, given in functions:
            _name("", given)
        started = []
        for i, (function, given) in enumerate(others, 1):
            body = lambda function=function, given=given: function(*given)  # noqa: E731
            started.append(self.block.start(f"workers {i}", body))
        first(*args)
        self.block.rest(lambda: all(group.done for group in started), "its workers")

    def barriers(self, count: int, arrivals: int) -> BarrierRow:
        self.made += 1
        return BarrierRow(f"barrier {self.made}", count, arrivals)

    def wait(self, bar: Barrier, phase, pred=True) -> None:
        if pred:
            parity = int(phase)
            self.block.rest(lambda: bar.phase & 1 != parity, f"phase {parity} of {bar.name}")

    def arrive(self, bar: Barrier, *, count: int = 1, pred=True) -> None:
        self.block.rest()
        if pred:
            for _ in range(count):
                bar.arrive(self.me.name)

    def expect(self, bar: Barrier, nbytes: int, pred=True) -> None:
        self.block.rest()
        if pred:
            bar.bytes += nbytes
            bar.arrive(self.me.name)

    def tma_load(self, desc: Described, at, bar: Barrier, buf: Shared, pred=True) -> None:
        self.block.rest()
        if not pred:
            return
        (cell,) = buf.cells
        cell.write(f"a copy for {self.me.name}", ahead=True)
        cell.landing = True
        buf.data.view(torch.uint8).fill_(POISON)

        def land() -> None:
            inside, place = desc.box(at)
            tile = buf.data.view(desc.block_type.shape)
            tile.zero_()
            tile[place].copy_(inside)
            cell.landing = False
            bar.bytes -= desc.block_type.nbytes
            bar.settle()

        self.block.flights.append(land)

    def copy_rows(self, buf: Shared, pointer: Pointer, mask=None) -> None:
        self.block.rest()
        (cell,) = buf.cells
        cell.write(f"a copy for {self.me.name}", ahead=False)
        cell.landing = True
        value = loaded(pointer, mask, 0.0)
        buf.data.view(torch.uint8).fill_(POISON)
        self.me.copies[-1].append((buf, value))

    def copy_commit(self) -> None:
        self.me.copies.append([])

    def copy_wait(self, num_outstanding: int = 0) -> None:
        self.block.rest()
        while len(self.me.copies) > num_outstanding + 1:
            for buf, value in self.me.copies.pop(0):
                buf.data.copy_(value)
                buf.cells[0].landing, buf.cells[0].unfenced = False, self.me

    def tma_store(self, desc: Described, at, buf: Shared) -> None:
        self.block.rest()
        self.me.stores.append(TileStore(self.me.name, desc, at, buf))

    def tma_add(self, desc: Described, at, buf: Shared) -> None:
        self.block.rest()
        self.me.stores.append(Addition(self.me.name, desc, at, buf))

    def tma_store_wait(self, pendings: int) -> None:
        self.block.rest()
        self.drain(self.me.stores, pendings)

    def drain(self, under_way: list, left: int) -> None:
        """Let the oldest land until so many are left."""
        while len(under_way) > left:
            under_way.pop(0).land()

    def fence(self) -> None:
        for cell in self.cells:
            if cell.unfenced is self.me:
                cell.unfenced = None

    def sync(self) -> None:
        self.block.rest()

    def wgmma(self, a, b: Shared, acc, *, use_acc=True, is_async=False):
        self.block.rest()
        for name, factor in (("left", a), ("right", b), ("sum", acc)):
            if isinstance(factor, Product) and not (name == "sum" and factor.goes_on):
                raise Fault(f"{self.me.name} uses a product as {name} before waiting for it")
        m, k, n = a.shape[0], a.shape[1], b.shape[1]
        if b.shape[0] != k or list(acc.shape) != [m, n] or a.dtype != b.dtype:
            raise Fault(f"a product of {a.shape} and {b.shape} into {list(acc.shape)}")
        made = Product(self.me.name, a, b, acc if use_acc else None)
        self.me.products.append(made)
        return made if is_async else self.wgmma_wait(0, deps=(made,))

    def wgmma_go_on(self, made: Product) -> Product:
        self.block.rest()
        self.drain(self.me.products, 1)
        made.goes_on = True
        return made

    def wgmma_wait(self, num_outstanding: int = 0, deps=()):
        self.block.rest()
        self.drain(self.me.products, num_outstanding)
        for dep in deps:
            if isinstance(dep, Product) and dep.value is None:
                raise Fault(f"{self.me.name} takes a product that is still under way")
        values = [dep.value if isinstance(dep, Product) else dep for dep in deps]
        return values[0] if len(values) == 1 else tuple(values)

    def opaque(self, o: Tensor) -> Tensor:
        return o

    def laid_out_as(self, b: Tensor, other: Tensor) -> Tensor:
        return b

    def where_at_most(self, b: Tensor, o_a: Tensor, o_b: Tensor) -> Tensor:
        return torch.where(o_a <= o_b, b, -torch.inf)

    def pack(self, b: Tensor, dtype) -> Tensor:
        return b.to(dtype)

    def unpack(self, b: Tensor, dtype, layout) -> Tensor:
        return b


def _name(path: str, given: tuple) -> None:
    """Call barriers and buffers what the fields are called in which the warps get them."""
    for field, value in zip(getattr(given, "_fields", [""] * len(given)), given, strict=True):
        name = f"{path}.{field}".strip(".")
        if isinstance(value, tuple):
            _name(name, value)
        elif name and isinstance(value, Shared | BarrierRow):
            value.rename(name)


def loaded(pointer: Pointer, mask, other: float):
    """What lies at some addresses, and `other` where the mask says that it does not count."""
    place, mask = pointer.places(mask)
    if not place.dim():  # one number, which may be how often to do something
        return pointer.memory()[place].item()
    return torch.where(mask, pointer.memory()[place], other)


class Language:
    """The part of triton.experimental.gluon.language that the kernels use."""

    float32, float16, bfloat16 = torch.float32, torch.float16, torch.bfloat16
    int16, int32, int64 = torch.int16, torch.int32, torch.int64
    float8e4nv = torch.float8_e4m3fn
    static_range = range
    SliceLayout = gluon.gl.SliceLayout
    NVMMASharedLayout = gluon.gl.NVMMASharedLayout
    BlockedLayout = gluon.gl.BlockedLayout
    where, exp2, log2 = torch.where, torch.exp2, torch.log2

    def __init__(self, words: Words):
        self.words = words

    def program_id(self, axis: int) -> int:
        return self.words.block.program

    def num_programs(self, axis: int) -> int:
        return self.words.block.grid

    def allocate_shared_memory(self, dtype, shape, layout) -> Shared:
        self.words.made += 1
        data = torch.zeros(shape, dtype=dtype)
        data.view(torch.uint8).fill_(POISON)
        name = f"buffer {self.words.made}"
        cells = [Cell(f"{name}[{i}]") for i in range(shape[0])] if len(shape) % 2 else [Cell(name)]
        self.words.cells += cells
        return Shared(self.words.block, data, cells)

    def cdiv(self, a: int, b: int) -> int:
        return -(-a // b)

    def minimum(self, a, b):
        return torch.fmin(a, b) if isinstance(a, Tensor) else min(a, b)

    def maximum(self, a, b):
        return torch.fmax(a, b) if isinstance(a, Tensor) else max(a, b)

    def zeros(self, shape, dtype, layout=None) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    def full(self, shape, value, dtype, layout=None) -> Tensor:
        return torch.full(shape, value, dtype=dtype)

    def arange(self, start: int, end: int, layout=None) -> Tensor:
        return torch.arange(start, end, dtype=torch.int32)

    def convert_layout(self, value, layout, assert_trivial=False):
        return value

    def max(self, b: Tensor, axis: int) -> Tensor:
        return torch.where(b.isnan(), -torch.inf, b).amax(axis)  # the machine's skips NaN

    def sum(self, b: Tensor, axis: int) -> Tensor:
        return b.sum(axis)

    def load(self, pointer: Pointer, mask=None, other=0.0):
        return loaded(pointer, mask, other)

    def store(self, pointer: Pointer, value: Tensor, mask=None) -> None:
        place, mask = pointer.places(mask)
        value = value.to(pointer.base.dtype).expand(place.shape)
        pointer.memory()[place[mask]] = value[mask]
