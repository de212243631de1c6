"""A rank: run the body of a job, say how it ended, and stay until ended.

Nothing here knows of torch; what a rank does is passed in as the job's `body`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable

from weft.process.job import LENGTH, PATIENCE, Job, Outcome

LINGER = 1.0  # how long a rank that returned keeps its connections open for its peers


def be_rank(job: Job, rank: int, ends: dict[str, int], folder: str) -> None:
    """Run the body, report, and stay until ended: connections stay open for the peers."""
    nursery = os.getppid()
    os.setsid()
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: should the nursery be killed
    if os.getppid() != nursery:
        return
    _own_streams(ends)
    with open(stack_file(folder, rank), "w") as stack:
        faulthandler.enable(sys.stderr)
        faulthandler.register(signal.SIGUSR2, stack, all_threads=False)
        outcome = _outcome(job, rank, folder)
        sys.stdout.flush()
        sys.stderr.flush()
        data = pickle.dumps(outcome)
        with open(ends["result"], "wb") as result:
            result.write(LENGTH.pack(len(data)) + data)
        # A peer must not see a connection close because of a failure: it would report it as its
        # own, and might be heard first. One that returned may go; who still waits for it is wrong.
        time.sleep(LINGER if outcome.kind == "returned" else PATIENCE)


def _own_streams(ends: dict[str, int]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, fd in enumerate((nothing, ends["stdout"], ends["stderr"])):
        os.dup2(fd, target)
        os.close(fd)
    for fd, name in ((1, "stdout"), (2, "stderr")):
        raw = io.FileIO(fd, "w", closefd=False)
        text = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace")
        text.reconfigure(line_buffering=True)
        setattr(sys, name, text)


def _outcome(job: Job, rank: int, folder: str) -> Outcome:
    try:
        job.settle()
        module, _, name = job.body.partition(":")
        body = getattr(sys.modules[module], name)
        return Outcome(rank, "returned", value=body(job, rank, folder))
    except BaseException as error:
        return raised(rank, error)


def raised(rank: int, error: BaseException) -> Outcome:
    """The outcome of a rank whose function raised, its traceback without our own frames."""
    cause = "".join(traceback.format_exception_only(error)).strip()
    frames = error.__traceback__
    ours = (__name__, "weft.run.world")
    while frames is not None and frames.tb_frame.f_globals.get("__name__") in ours:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    return Outcome(rank, "raised", cause, text.strip(), time=time.monotonic())


def as_child(body: Callable[[], None]) -> None:
    """Run what a forked process is for, and never return into its parent's code."""
    status = 1
    try:
        body()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def stack_file(folder: str, rank: int) -> str:
    return os.path.join(folder, f"stack.{rank}")
