"""Gluon on a laptop: what a kernel of this book computes, and whether its barriers hold.

Triton interprets Triton, not Gluon. This does it for the words of `weft.kernels.gluon`: the same
Python functions run, on torch tensors. Each group of warps is a thread, and only one of them moves
at a time. Which one, a seed decides, at every word that has to do with other warps. Copies and
products land late, at a time that the seed picks too. So a barrier that is missing shows as a
wrong number or as a complaint, and one too many as a Deadlock that names who waits for what.

Complaints: a tile is overwritten while a product or a copy reads it; it is read before it has
landed; threads' stores are read by the copy engine or the tensor cores without a fence; a result
is used before it was waited for; a barrier gets more arrivals than it was made for; memory outside
of a tensor is touched; something is still under way at the end.

Not seen: layouts and registers, which compiling checks, and the warps within a group, which here
move as one.
"""

import random
import threading
from collections.abc import Callable, Sequence
from types import FunctionType, SimpleNamespace

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from weft.kernels.gluon import words as gluon

POISON = 0xFF  # in every byte: NaN in all floating point formats


class Fault(RuntimeError):
    """A kernel has broken a rule of the machine."""


class Deadlock(Fault):
    """Every group of warps waits, and nothing is under way that could end it."""


class Stopped(BaseException):
    """Ends the threads of a block that has failed."""


def run(kernel: JITFunction, grid: int, args: Sequence, seed: int = 0, **constexprs) -> None:
    """Run a kernel as `kernel[(grid,)](*args, **constexprs)` would on a GPU.

    Tensors are read and written in place; descriptors describe tensors of the CPU. The seed
    chooses who moves and what lands when; every choice must give the same result. Raises Fault
    with what the kernel did, and where.
    """
    bound = [_argument(arg) for arg in args]
    named = {name: _argument(value) for name, value in constexprs.items()}
    for program in range(grid):
        Block(program, grid, random.Random(f"{seed} {program}")).run(kernel, bound, named)


def _argument(value):
    if isinstance(value, gluon.TensorDescriptor):
        return Described(value)
    if isinstance(value, Tensor):
        return Pointer(value, 0)
    return value


# --- one block of threads -------------------------------------------------------------------------


class Group:
    """Some warps of a block that go the same way: a thread, and what it has under way."""

    def __init__(self, name: str, body: Callable[[], object]):
        self.name, self.body = name, body
        self.go = threading.Semaphore(0)
        self.ready: Callable[[], bool] | None = None  # None: it can go on
        self.waits = ""
        self.done = False
        self.products: list[Product] = []
        self.stores: list[Store] = []


class Block:
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

    def run(self, kernel: JITFunction, args: list, constexprs: dict) -> None:
        """Start the kernel in a first group and hand the baton round until all are done."""
        words = Words(self)
        self.words = {id(key): value for key, value in words.table()}
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
                group.body()
                if group.products or group.stores:
                    raise Fault(f"{group.name} ends while its products or stores are under way")
        except Stopped:
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
            raise Deadlock(f"program {self.program}: " + "; ".join(waits))

    def rest(self, ready: Callable[[], bool] | None = None, waits: str = "") -> None:
        """Called by a group: give the baton away until it may go on."""
        me = self.now
        me.ready, me.waits = ready, waits
        self.baton.release()
        me.go.acquire()
        if self.stopped:
            raise Stopped
        me.ready = None

    def spoken(self, function):
        """A kernel's function with this block's words in place of Gluon's."""
        if id(function) in self.words:
            return self.words[id(function)]
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


# --- memory ---------------------------------------------------------------------------------------


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

    def __init__(self, block: Block, data: Tensor, cells: list[Cell]):
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


class Row:
    """Barriers in a row."""

    def __init__(self, name: str, count: int, arrivals: int):
        self.all = [Barrier(f"{name}[{i}]", arrivals) for i in range(count)]

    def index(self, i: int) -> Barrier:
        return self.all[i]


class Product:
    """A product on its way: computed when it is waited for, from what then lies in memory."""

    def __init__(self, who: str, a, b: Shared, acc: Tensor | None):
        self.a, self.b, self.acc, self.value = a, b, acc, None
        self.name = f"a product of {who}"
        self.cells = [*b.cells, *(a.cells if isinstance(a, Shared) else [])]
        for cell in self.cells:
            cell.read(self.name, ahead=True)
            cell.readers.append(self.name)

    def land(self) -> None:
        a = self.a.data if isinstance(self.a, Shared) else self.a
        self.value = a.float() @ self.b.data.float()
        if self.acc is not None:
            self.value += self.acc
        for cell in self.cells:
            cell.readers.remove(self.name)


class Store:
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


class Addition(Store):
    """A tile on its way out, to be added to what is there."""

    def land(self) -> None:
        inside, _ = self.desc.box(self.at)
        before = inside.clone()
        super().land()
        inside += before


# --- the words of weft.kernels.gluon --------------------------------------------------------------


class Words:
    """What each word does in a block."""

    def __init__(self, block: Block):
        self.block = block
        self.made = 0
        self.cells: list[Cell] = []

    def table(self):
        """Pairs of Gluon's word and ours."""
        yield gluon.gl, Language(self)
        for name in (
            "arrive", "barriers", "expect", "fence", "here", "pack", "sync", "tma_add",
            "tma_load", "tma_store", "tma_store_wait", "unpack", "wait", "wgmma", "wgmma_wait",
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
        started = []
        for i, (function, given) in enumerate(others, 1):
            body = lambda function=function, given=given: function(*given)  # noqa: E731
            started.append(self.block.start(f"workers {i}", body))
        first(*args)
        self.block.rest(lambda: all(group.done for group in started), "its workers")

    def barriers(self, count: int, arrivals: int) -> Row:
        self.made += 1
        return Row(f"barrier {self.made}", count, arrivals)

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

    def tma_store(self, desc: Described, at, buf: Shared) -> None:
        self.block.rest()
        self.me.stores.append(Store(self.me.name, desc, at, buf))

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
            if isinstance(factor, Product):
                raise Fault(f"{self.me.name} uses a product as {name} before waiting for it")
        m, k, n = a.shape[0], a.shape[1], b.shape[1]
        if b.shape[0] != k or list(acc.shape) != [m, n] or a.dtype != b.dtype:
            raise Fault(f"a product of {a.shape} and {b.shape} into {list(acc.shape)}")
        made = Product(self.me.name, a, b, acc if use_acc else None)
        self.me.products.append(made)
        return made if is_async else self.wgmma_wait(0, deps=(made,))

    def wgmma_wait(self, num_outstanding: int = 0, deps=()):
        self.block.rest()
        self.drain(self.me.products, num_outstanding)
        for dep in deps:
            if isinstance(dep, Product) and dep.value is None:
                raise Fault(f"{self.me.name} takes a product that is still under way")
        values = [dep.value if isinstance(dep, Product) else dep for dep in deps]
        return values[0] if len(values) == 1 else tuple(values)

    def here(self, o: Tensor) -> Tensor:
        return o

    def where_at_most(self, b: Tensor, o_a: Tensor, o_b: Tensor) -> Tensor:
        return torch.where(o_a <= o_b, b, -torch.inf)

    def pack(self, b: Tensor, dtype) -> Tensor:
        return b.to(dtype)

    def unpack(self, b: Tensor, dtype, layout) -> Tensor:
        return b


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
        place, mask = pointer.places(mask)
        if not place.dim():  # one number, which may be how often to do something
            return pointer.memory()[place].item()
        return torch.where(mask, pointer.memory()[place], other)

    def store(self, pointer: Pointer, value: Tensor, mask=None) -> None:
        place, mask = pointer.places(mask)
        value = value.to(pointer.base.dtype).expand(place.shape)
        pointer.memory()[place[mask]] = value[mask]
