"""The ranks of a run: start a function on n of them, and know who the others are.

`launch(fn, n)` runs `fn(world)` on n processes of this machine and returns what they returned.
The same script under `torchrun` runs unchanged: the processes are there already, so launch
becomes a call in each of them.

Groups are arguments: our code asks its World for the group to talk to. torch also wants one
default group to exist in a process; it is initialised here, and nothing of ours relies on it.
"""

from __future__ import annotations

import faulthandler
import io
import json
import linecache
import math
import os
import pickle
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib import import_module
from operator import index
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from weft.plan.arguments import sizes
from weft.process import forkserver, supervisor
from weft.process import rank as rank_process
from weft.process.job import Job, Outcome
from weft.run.world.rendezvous import FAILED, meet, stay_until_all_are_connected

try:
    import cloudpickle
except ImportError:  # then functions must live in a module
    cloudpickle = None

BACKENDS = {"gloo": "gloo", "nccl": "cpu:gloo,cuda:nccl"}
# What torch loads only when an optimizer is made, or backward begins at a given gradient. It takes
# each rank a second or more; where we have it, once.
_LATE = ("torch._dynamo", "torch.fx.experimental.symbolic_shapes")
_MARGIN = 60.0  # a group's own limit lies beyond the launch's, whose report says more


class RankFailed(RuntimeError):
    """A rank raised, died or hung: the root cause first, then what else is known.

    rank and cause are the root's; failures holds every rank's Outcome, the root's first.
    """

    def __init__(self, failures: tuple[Outcome, ...], n: int) -> None:
        super().__init__(failures, n)
        self.failures, self.n = failures, n
        self.rank, self.cause, self.detail = (
            failures[0].rank,
            _says(failures[0]),
            failures[0].detail,
        )

    def __str__(self) -> str:
        root, *others = self.failures
        lines = [f"rank {root.rank} of {self.n}: {self.cause}"]
        lines += ["", root.detail] if root.detail else []
        for outcome in others:
            if outcome.kind in ("raised", "died"):
                lines += ["", f"then rank {outcome.rank}: {_says(outcome).splitlines()[0]}"]
            elif outcome.kind == "hung":
                lines += ["", f"and rank {outcome.rank}: {_says(outcome)}", "", outcome.detail]
        for kind, words in (("returned", "had returned"), ("stopped", "stopped in their work")):
            ranks = [str(outcome.rank) for outcome in others if outcome.kind == kind]
            lines += ["", f"{words}: {', '.join(ranks)}"] if ranks else []
        return "\n".join(lines)


def _says(outcome: Outcome) -> str:
    return outcome.cause or outcome.kind


@dataclass(frozen=True, eq=False)
class World:
    """Some ranks that work together, as one of them sees it.

    rank is this process's place among them, 0 … size - 1, and is what torch calls the group rank:
    send with `group_dst=`, receive with `group_src=`. device is where its tensors belong.
    """

    rank: int
    size: int
    device: torch.device
    _group: dist.ProcessGroup = field(repr=False)
    _axes: dict[str, World] = field(default_factory=dict, repr=False)

    def group(self, axis: str | None = None) -> dist.ProcessGroup:
        """The process group of all these ranks, or of those along an axis of a grid."""
        return self._group if axis is None else self.axis(axis)._group

    def axis(self, name: str) -> World:
        """The ranks along an axis: those that differ from this one in that coordinate alone.

        Its rank is this process's coordinate, its size the length of the axis.
        """
        if name not in self._axes:
            raise ValueError(f"axis = {name!r}: must be one of {sorted(self._axes)}")
        return self._axes[name]

    def grid(self, **axes: int) -> World:
        """The same ranks, laid out on named axes; the last axis varies fastest.

        Every rank of this world calls it with the same axes. `world.grid(d=2, p=4).axis("p")` is
        the pipeline that this rank belongs to.
        """
        if not axes or any(not _is_count(length) for length in axes.values()):
            raise ValueError(f"axes = {axes}: each must be a whole number of at least 1")
        if math.prod(axes.values()) != self.size:
            raise ValueError(
                f"axes = {axes}: their product is {math.prod(axes.values())},"
                f" must be the number of ranks, {self.size}"
            )
        members = dist.get_process_group_ranks(self._group)
        along, stride = {}, self.size
        for name, length in axes.items():
            stride //= length
            here = self.rank // stride % length
            first = self.rank - here * stride
            ranks = [members[first + i * stride] for i in range(length)]
            group = dist.new_group(ranks, use_local_synchronization=True)
            along[name] = World(here, length, self.device, group)
        return World(self.rank, self.size, self.device, self._group, along)


def launch(
    fn: Callable[..., Any],
    n: int,
    *args: Any,
    backend: str | None = None,
    timeout: float = 120,
) -> list[Any]:
    """Run fn(world, *args) on n ranks and return what each returned, by rank.

    The first rank that raises, dies or is still running after `timeout` seconds ends them all
    with RankFailed. When launch returns or raises, by Ctrl-C too, no process that a rank has
    started is left. fn may be defined in a notebook cell. What ranks print appears whole, in
    order of rank; rank 0's as it is written. backend None is "nccl" where each rank can have a
    CUDA device of its own, else "gloo".

    Under torchrun n must equal WORLD_SIZE; fn runs in this process and every rank gets the list.
    """
    backend, n = _checked(fn, n, backend, timeout), index(n)
    payload = _packed(fn, args)
    if _under_torchrun():
        return _call_here(fn, n, args, backend, timeout)
    job = Job.here(f"{__name__}:_rank", pickle.dumps((backend, payload)), n, float(timeout))
    late = tuple(name for name in _LATE if name in sys.modules)
    output = _Output(n)
    try:
        outcomes = forkserver.run(job, ("torch", __name__, *late), output.show)
    finally:
        output.close()
    return _values([_legible(outcome, timeout) for outcome in outcomes], n)


def _is_count(value: object) -> bool:
    try:
        return bool(sizes(count=value))
    except ValueError:
        return False


def _under_torchrun() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def _checked(fn: object, n: object, backend: str | None, timeout: object) -> str:
    """The backend to use; ValueError for what can be known to be wrong before any rank starts."""
    if not callable(fn):
        raise ValueError(f"fn = {fn!r}: must be callable")
    if not _is_count(n):
        raise ValueError(f"n = {n!r}: must be a whole number of ranks, at least 1")
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ValueError(f"timeout = {timeout!r}: must be a number of seconds above 0")
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend = {backend!r}: must be one of {[*BACKENDS]}, or None")
    if _under_torchrun() and n != int(os.environ["WORLD_SIZE"]):
        size = os.environ["WORLD_SIZE"]
        raise ValueError(f"n = {n}: must be {size}, the number of ranks that torchrun started")
    here = int(os.environ.get("LOCAL_WORLD_SIZE", n)) if _under_torchrun() else n
    devices = torch.cuda.device_count() if dist.is_nccl_available() else 0
    if backend == "nccl" and here > devices:
        raise ValueError(
            f"backend = 'nccl': {here} ranks need as many CUDA devices, there are {devices}"
        )
    return backend or ("nccl" if here <= devices else "gloo")


# --- what goes to the ranks and comes back ----------------------------------------------------


class _PlainPickler(pickle.Pickler):
    """pickle, which finds functions and classes by name, so none of a script or a cell."""

    def reducer_override(self, obj: object) -> Any:
        named = isinstance(obj, types.FunctionType | type)
        if named and (obj.__module__ == "__main__" or "<" in obj.__qualname__):
            raise pickle.PicklingError(
                f"{obj.__qualname__} is defined in a cell, a script or a function: install"
                " cloudpickle, or move it into a module"
            )
        return NotImplemented


if cloudpickle is None:
    _Pickler = _PlainPickler
else:

    class _Pickler(cloudpickle.Pickler):
        """cloudpickle, which also takes along functions that name torch.ops."""

        def reducer_override(self, obj: object) -> Any:
            special = isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType
            if special and sys.modules.get(obj.__name__) is obj:
                return import_module, (obj.__name__,)
            return super().reducer_override(obj)


def _dumps(value: object) -> bytes:
    data = io.BytesIO()
    _Pickler(data).dump(value)
    return data.getvalue()


@contextmanager
def _by_value(fn: Callable[..., Any]) -> Iterator[None]:
    """Have fn's module pickled with it where a rank could not import it: a file loaded by path."""
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    name = module.__name__.partition(".")[0] if module else "__main__"
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    found = any(find and find(name, None) for find in finders)
    if cloudpickle is None or name == "__main__" or found:
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _packed(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """fn and args pickled, together since they may share objects; ValueError names the culprit."""
    try:
        with _by_value(fn):
            return _dumps((fn, args))
    except Exception as whole:
        for name, value in (("fn", fn), *((f"args[{i}]", arg) for i, arg in enumerate(args))):
            try:
                _dumps(value)
            except Exception as error:
                raise ValueError(f"{name} = {value!r} cannot be pickled: {error}") from error
        raise ValueError(f"fn and args cannot be pickled together: {whole}") from whole


def _values(outcomes: list[Outcome], n: int) -> list[Any]:
    failures = sorted(outcomes, key=_blame)
    if failures[0].kind != "returned":
        raise RankFailed(tuple(failures), n)
    return [_unpacked(outcome, n) for outcome in outcomes]


def _unpacked(outcome: Outcome, n: int) -> Any:
    try:
        return pickle.loads(outcome.value)
    except Exception as error:
        cause = f"what it returned cannot be unpickled here: {type(error).__name__}: {error}"
        failure = Outcome(outcome.rank, "raised", cause)
        raise RankFailed((failure,), n) from error


def _blame(outcome: Outcome) -> tuple:
    """The root cause first.

    A death comes before an exception: a rank that raised keeps its connections open, so only a
    dead one makes others raise. Of the hung, those that wait for no other rank come first.
    """
    order = ("died", "raised", "hung", "stopped", "returned")
    return order.index(outcome.kind), outcome.time, _waits(outcome.detail), outcome.rank


def _waits(stack: str) -> bool:
    """Whether a hung rank stands in a call of torch.distributed, waiting for others."""
    innermost = stack.rpartition('  File "')[2]
    return "torch/distributed/" in innermost or ".wait(" in innermost


def _legible(outcome: Outcome, timeout: float) -> Outcome:
    """An outcome with its stack in the order and form of a traceback, if it hung."""
    if outcome.kind != "hung":
        return outcome
    frames = re.findall(r'File "(.*)", line (\d+) in (.*)', outcome.detail)
    ours = (forkserver.__file__, supervisor.__file__, rank_process.__file__, __file__)
    lines = ["It was here (most recent call last):"] if frames else []
    for name, line, function in reversed(frames):
        if name not in ours and name != "<string>":
            source = linecache.getline(name, int(line)).strip()
            lines.append(f'  File "{name}", line {line}, in {function}')
            lines += [f"    {source}"] if source else []
    return Outcome(outcome.rank, "hung", f"still running after {timeout:g} s", "\n".join(lines))


class _Output:
    """Prints what the ranks write: whole lines, rank by rank, the first as it comes.

    A rank's lines wait for those of the ranks before it, which the launch's end completes, so
    the same program prints the same text.
    """

    def __init__(self, n: int) -> None:
        self.unfinished = {(rank, name): b"" for rank in range(n) for name in ("stdout", "stderr")}
        self.waiting: dict[int, list[tuple[str, str]]] = {rank: [] for rank in range(n)}

    def show(self, rank: int, stream: str, data: bytes) -> None:
        whole, end, rest = (self.unfinished[rank, stream] + data).rpartition(b"\n")
        self.unfinished[rank, stream] = rest
        for line in whole.split(b"\n") if end else []:
            self.waiting[rank].append((stream, f"[{rank}] {line.decode(errors='replace')}\n"))
        if rank == 0:
            self._print(0)

    def _print(self, rank: int) -> None:
        for stream, line in self.waiting[rank]:
            getattr(sys, stream).write(line)
        if self.waiting[rank]:
            sys.stdout.flush()
        self.waiting[rank].clear()

    def close(self) -> None:
        for rank in self.waiting:
            for stream in ("stdout", "stderr"):
                if self.unfinished[rank, stream]:
                    self.show(rank, stream, b"\n")
            self._print(rank)


# --- in a rank --------------------------------------------------------------------------------


def _rank(job: Job, rank: int, folder: str) -> bytes:
    """What a rank of a launch does, from the fork to the pickled value."""
    torch.set_num_threads(1)
    backend, payload = pickle.loads(job.payload)
    try:
        fn, args = pickle.loads(payload)
    except Exception as error:
        raise pickle.UnpicklingError(
            f"fn or its arguments cannot be unpickled in a rank: {type(error).__name__}: {error}"
        ) from error
    if sys.platform == "linux":  # the machine's name may belong to an address that it cannot reach
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    # A file, so that there is no port to race for and no rank that takes the meeting point along.
    store = dist.FileStore(os.path.join(folder, "store"), job.size)
    world = _join(rank, job.size, rank, backend, store, job.timeout)
    return _result(fn(world, *args))


def _result(value: object) -> bytes:
    try:
        return _dumps(value)
    except Exception as error:
        raise pickle.PicklingError(
            f"what fn returned, a {type(value).__name__}, cannot be pickled: {error}"
        ) from error


def _join(
    rank: int, size: int, local: int, backend: str, store: dist.Store, timeout: float
) -> World:
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        BACKENDS[backend],
        store=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout + _MARGIN),
        device_id=device if device.type == "cuda" else None,
    )
    return World(rank, size, device, dist.group.WORLD)


# --- under torchrun ---------------------------------------------------------------------------


@cache
def _meeting_point(rank: int, n: int) -> dist.Store:
    """What these ranks have of torchrun's store; the same for all launches of this process."""
    return meet(next(iter(rendezvous("env://")))[0], rank, n)


@contextmanager
def _limited(timeout: float) -> Iterator[None]:
    """Within it this process ends, its stack on stderr, when the time is up."""
    faulthandler.dump_traceback_later(timeout, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


_launches = 0


def _call_here(
    fn: Callable[..., Any], n: int, args: tuple[Any, ...], backend: str, timeout: float
) -> list[Any]:
    """launch in a process that torchrun has started: call fn, then exchange what it returned.

    A rank that fails says so in the store before it raises, so that its peers, which see a
    closed connection, can name it. A rank that hangs writes its stack to stderr and exits when
    the time is up, and torchrun ends the others.
    """
    global _launches
    _launches += 1
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", 0))
    with _limited(timeout):
        # Each launch has keys of its own: a group that meets again must not find old addresses.
        store = dist.PrefixStore(str(_launches), _meeting_point(rank, n))
        try:
            world = _join(rank, n, local, backend, store, timeout)
            stay_until_all_are_connected(store, n)
            value = _result(fn(world, *args))
            values: list[Any] = [None] * n
            dist.all_gather_object(values, value, group=world.group())
            outcomes = [Outcome(i, "returned", value=value) for i, value in enumerate(values)]
        except BaseException as error:
            mine = rank_process.raised(rank, error)
            words = json.dumps([mine.rank, mine.kind, mine.cause, mine.detail])
            first = Outcome(*json.loads(store.compare_set(FAILED, "", words)))
            others = () if first.rank == rank else (mine,)
            raise RankFailed((first, *others), n) from None  # it holds the traceback
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
    return _values(outcomes, n)
