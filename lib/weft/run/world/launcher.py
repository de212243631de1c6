"""`launch(fn, n)` runs `fn(world)` on n processes of this machine and returns what they returned.

The same script under `torchrun` runs unchanged: the processes are there already, so launch
becomes a call in each of them (torchrun.py).
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Callable
from operator import index
from typing import Any

import torch
import torch.distributed as dist

from weft.process import forkserver
from weft.process.job import Job, Surroundings
from weft.run.world import torchrun
from weft.run.world.grid import BACKENDS, is_count, join
from weft.run.world.pickling import packed, packed_result
from weft.run.world.report import RankOutput, returned

# What each rank would import again, and is imported once where we have it: what torch loads only
# when an optimizer is made, or backward begins at a given gradient, which takes a second or more,
# and what functions and warnings of a notebook or a test name, with all of this package.
_LATE = ("torch._dynamo", "torch.fx.experimental.symbolic_shapes", "IPython.core.completer")
_LATE += ("pytest",)


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
    payload = pickle.dumps((backend, packed(fn, args)))
    if torchrun.has_started_us():
        return torchrun.call(fn, n, args, backend, timeout)
    job = Job(f"{__name__}:_rank", payload, n, float(timeout), Surroundings.here())
    late = [name for name in sys.modules if name in _LATE or name.startswith("weft.run.")]
    output = RankOutput(n)
    try:
        with forkserver.own(("torch", __name__, *late)).start(job) as ranks:
            outcomes = ranks.wait(show=output.show)
    finally:
        output.close()
    if outcomes is None:
        raise RuntimeError("the process that watches over the ranks does not answer")
    return returned(outcomes, n, timeout)


RANKS = 10**5  # processes on one machine: what more would be, no system has numbers for
YEARS = 10**9  # seconds


def _checked(fn: object, n: object, backend: str | None, timeout: object) -> str:
    """The backend to use; ValueError for what can be known to be wrong before any rank starts."""
    if not callable(fn):
        raise ValueError(f"fn = {fn!r}: must be callable")
    if not is_count(n):
        raise ValueError(f"n = {n!r}: must be a whole number of ranks, at least 1")
    if n > RANKS and not torchrun.has_started_us():
        raise ValueError(f"n = {n}: must be at most {RANKS} on one machine")
    real = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not real or not 0 < timeout <= YEARS:
        limit = f", of at most {YEARS}" if isinstance(timeout, int) and timeout > YEARS else ""
        raise ValueError(f"timeout = {timeout!r}: must be a number of seconds above 0{limit}")
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend = {backend!r}: must be one of {[*BACKENDS]}, or None")
    if torchrun.has_started_us() and n != int(os.environ["WORLD_SIZE"]):
        size = os.environ["WORLD_SIZE"]
        raise ValueError(f"n = {n}: must be {size}, the number of ranks that torchrun started")
    here = int(os.environ.get("LOCAL_WORLD_SIZE", n)) if torchrun.has_started_us() else n
    devices = torch.cuda.device_count() if dist.is_nccl_available() else 0
    if backend == "nccl" and here > devices:
        raise ValueError(
            f"backend = 'nccl': {here} ranks need as many CUDA devices, there are {devices}"
        )
    return backend or ("nccl" if here <= devices else "gloo")


def _rank(job: Job, rank: int, folder: str) -> bytes:
    """What a rank of a launch does, from the fork to the pickled value."""
    torch.set_num_threads(1)
    backend, payload = pickle.loads(job.payload)
    try:
        with warnings.catch_warnings():  # modules that fn names are imported: their own warnings
            warnings.simplefilter("ignore", DeprecationWarning)
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
    world = join(rank, job.size, rank, backend, store, job.timeout)
    return packed_result(fn(world, *args))
