"""What a topic measures, record by record, so that a part can be asked for and none is lost.

Time on a GPU is short. So the records of a topic can be made one at a time, each is kept as
soon as it is there, and nothing is begun after a limit that was set.
"""

import importlib
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pkgutil import iter_modules
from typing import NamedTuple

from weft.bench.record import Record

Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now


class Job(NamedTuple):
    """What is measured in one go: the records that come of it, and who makes them.

    `seconds` is an estimate for one H200, compiling included; None where none was made.
    """

    names: tuple[str, ...]
    make: Callable[[Progress], Iterable[Record]]
    seconds: float | None = None


# Topics that make all of their records in one go: names, and the estimate where a GPU takes part.
TOGETHER: dict[str, tuple[tuple[str, ...], float | None]] = {
    "collectives": (("collectives-link", "collectives-bytes"), None),
    "decode_kernel": (("decode-kernel",), 120),
    "hopper_rmse": (("hopper-rmse",), None),
    "machine_code": (("attention-code", "decode-code", "hopper-code", "precision-code"), None),
    "offload": (("offload-disk", "offload-step", "offload-adam", "offload-training"), None),
    "offload_disk": (("offload-disk",), None),
    "pipeline": (("pipeline-peers", "pipeline-bubble", "pipeline-simulation"), None),
    "pipeline_search": (("pipeline-search",), None),
    "roofline": (("roofline",), 60),
    "zero": (("zero-step", "zero-peak"), 90),
    "zero_bytes": (("zero-bytes",), None),
}
NOT_TOPICS = ("goals", "jobs", "record")


def topics() -> list[str]:
    """Every topic that `weft bench` knows."""
    import weft.bench

    return [m.name for m in iter_modules(weft.bench.__path__) if m.name not in NOT_TOPICS]


def jobs(topic: str, device: str | None = None) -> list[Job]:
    """The jobs of a topic on this machine, the most telling first.

    A bench module that can make its records one at a time has a function `jobs(device)`, where
    None means the GPU if there is one; any other is one job.
    """
    module = importlib.import_module(f"weft.bench.{topic}")
    if hasattr(module, "jobs"):
        return module.jobs(device)
    names, seconds = TOGETHER.get(topic, ((), None))
    return [Job(names, module.bench, seconds)]


def chosen(found: Sequence[Job], only: Sequence[str]) -> list[Job]:
    """Those that make the records that are named, and no others of theirs; all if none is."""
    known = [name for job in found for name in job.names]
    for name in only:
        if name not in known:
            raise ValueError(f"unknown record {name!r}: choose from {', '.join(known)}")
    if not only:
        return list(found)
    kept = [(job, tuple(name for name in job.names if name in only)) for job in found]
    return [job._replace(names=n, make=partial(_some, job, n)) for job, n in kept if n]


def _some(job: Job, only: Sequence[str], progress: Progress) -> Iterable[Record]:
    return (record for record in job.make(progress) if record.name in only)


class Outcome(NamedTuple):
    """Records that were not begun, and what failed with its reason."""

    left: list[str]
    failed: dict[str, BaseException]


def carry_out(
    some: Sequence[Job],
    keep: Callable[[Record], None],
    progress: Progress,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Do one job after the other; hand each record to `keep` at once, begin none after `seconds`.

    A job that fails takes none of the others with it, unless the device does not answer any more:
    a GPU that has met a bad address refuses all that comes after.
    """
    start, outcome = clock(), Outcome([], {})
    for i, job in enumerate(some):
        if clock() - start >= seconds or not all(map(_answers, outcome.failed.values())):
            outcome.left.extend(job.names)
            continue
        progress(i, len(some), ", ".join(job.names))
        try:
            for record in job.make(partial(_within, progress, i, len(some))):
                keep(record)
        except Exception as error:
            if not isinstance(error, ValueError | OSError):
                traceback.print_exc(file=sys.stderr)
            error.__traceback__ = error.__context__ = None  # they hold tensors
            outcome.failed[", ".join(job.names)] = error
    return outcome


def _within(progress: Progress, i: int, of: int, done: float, total: float, what: str) -> None:
    """A job's progress as a part of that of all."""
    progress(i + (done / total if total else 0), of, what)


def _answers(error: BaseException) -> bool:
    """Whether the device still works after this error; asked once, then remembered."""
    if not hasattr(error, "device_answers"):
        torch = sys.modules.get("torch")
        try:
            if torch is not None and torch.cuda.is_initialized():
                torch.cuda.synchronize()
            error.device_answers = True
        except RuntimeError:
            error.device_answers = False
    return error.device_answers
