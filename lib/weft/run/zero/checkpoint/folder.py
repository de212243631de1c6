"""Checkpoints of ZeRO: every rank writes what it keeps, and any number of ranks can load it.

    save(folder, zero, step)          # on every rank, between two steps
    step, extra = load(folder, zero)  # on any number of ranks, at any stage, with any buckets

A save that is killed at any moment leaves the checkpoint before it as it was. What is read is
checked first, and zero is changed only when all ranks have read all of theirs.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from weft.plan.arguments import whole
from weft.run.zero.checkpoint import files as files
from weft.run.zero.checkpoint import state as state
from weft.run.zero.checkpoint.parts import LoadParts, ReadFiles, SaveParts, WriteFiles
from weft.run.zero.sharded import DataParallel

T = TypeVar("T")


class Loaded(NamedTuple):
    """What a checkpoint says beside the tensors."""

    step: int
    extra: Any


def save(folder: str | Path, zero: DataParallel, step: int, extra: Any = None) -> None:
    """Write a checkpoint, in place of the one that is in the folder.

    Every rank calls it, between two steps: gradients are not saved. It has the
    weights, or their masters, the optimizer's state and settings, the loss scaler's,
    and rank 0's buffers. `extra` is anything that JSON can hold. The folder has to be
    one that all ranks can reach.

    When it returns, the new checkpoint is on the disk, and the older one gone. If it
    raises, or is killed at any moment, one of the two is whole and is what `load`
    finds; what was left lying goes with the next save. An OSError names the file,
    ValueError what does not fit.
    """
    step, folder, group = whole("step", step, least=0), Path(folder), zero.update.group
    said = {"step": step, "extra": _first(group, lambda: _plain("extra", extra))}
    said |= _settings(zero)
    parts = _each(group, lambda: state.collected(zero))
    place = _first(group, lambda: files.begin(folder, step))
    writer = WriteFiles(place, zero.rank)
    _together(group, dcp.save, parts, storage_writer=writer, planner=SaveParts())
    _first(group, lambda: files.publish(place, said | {"tensors": writer.tensors}))


def load(folder: str | Path, zero: DataParallel) -> Loaded:
    """Make zero what it was when the folder's checkpoint was saved; step and extra.

    Every rank calls it. The module must have parameters of the same names, shapes and
    dtype, and the optimizer be of the same class; how many ranks there are, the stage
    and the size of buckets are free. Weights and the optimizer's state are the same
    to the bit.

    ValueError says which file is missing, cut short or damaged, or what does not fit;
    then nothing of zero has changed.
    """
    folder, group = Path(folder), zero.update.group
    place, manifest = _first(group, lambda: files.opened(folder))
    _fits(place, zero, manifest)
    parts = state.wanted(zero, manifest["tensors"])
    reader = ReadFiles(place, manifest["tensors"])
    _together(group, dcp.load, parts, storage_reader=reader, planner=LoadParts())
    state.restore(zero, parts)
    state.take_options(zero, manifest["options"])
    if zero.update.scaler is not None and manifest["scaler"] is not None:
        zero.update.scaler.load_state_dict(manifest["scaler"])
    return Loaded(manifest["step"], manifest["extra"])


def exists(folder: str | Path) -> bool:
    """Whether a save into this folder has ever been completed."""
    return (Path(folder) / files.POINTER).exists()


def _settings(zero: DataParallel) -> dict[str, Any]:
    """What the manifest says of zero beside its tensors."""
    scaler = zero.update.scaler
    return {
        "ranks": zero.n,
        "stage": zero.stage,
        "shapes": state.described(zero),
        "optimizer": type(zero.optimizer).__name__,
        "options": _plain("the optimizer's settings", state.options(zero)),
        "scaler": None if scaler is None else scaler.state_dict(),
    }


def _fits(place: Path, zero: DataParallel, manifest: dict[str, Any]) -> None:
    """ValueError unless the checkpoint is of such a module and optimizer."""
    here, there = state.described(zero), manifest["shapes"]
    for where in sorted(here.keys() | there.keys()):
        _, _, name = where.partition("/")
        if where not in there:
            raise ValueError(f"{place} has no {name}, which the module has; nothing was loaded")
        if where not in here:
            raise ValueError(f"{place} has {name}, which the module has not; nothing was loaded")
        if here[where] != there[where]:
            raise ValueError(
                f"{place} has {name} of shape {there[where]}, the module's is {here[where]}; "
                "nothing was loaded"
            )
    for bucket in zero.buckets:
        kept = str((bucket.weights if bucket.masters is None else bucket.masters).dtype)
        for name in bucket.names:
            saved = manifest["tensors"][f"weights/{name}"]["dtype"]
            if f"torch.{saved}" != kept:
                raise ValueError(
                    f"{place} has {name} in {saved}, the optimizer's is in "
                    f"{kept.removeprefix('torch.')}; nothing was loaded"
                )
    kind = type(zero.optimizer).__name__
    if kind != manifest["optimizer"]:
        raise ValueError(
            f"{place} has the state of {manifest['optimizer']}, the optimizer is of class {kind}; "
            "nothing was loaded"
        )
    groups, saved = len(zero.optimizer.param_groups), len(manifest["options"])
    if groups != saved:
        raise ValueError(
            f"{place} has {saved} groups of parameters, the optimizer has {groups}; "
            "nothing was loaded"
        )


def _plain(what: str, value: Any) -> Any:
    """The value, if JSON gives it back as it is (a tuple as a list)."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be what JSON can hold: {error}") from None


# --- all ranks, or none ---------------------------------------------------------------------------


def _first(group: dist.ProcessGroup, do: Callable[[], T]) -> T:
    """What rank 0 gets by doing it, on every rank; or its error, on every rank."""
    told: list[Any] = [None, None]
    if group.rank() == 0:
        try:
            told[0] = do()
        except (OSError, ValueError) as error:
            told[1] = error
    if group.size() > 1:
        dist.broadcast_object_list(told, group=group, group_src=0)
    if told[1] is not None:
        raise told[1]
    return told[0]


def _each(group: dist.ProcessGroup, do: Callable[[], T]) -> T:
    """What each rank gets by doing it, unless it is wrong on one: then that, on every rank."""
    mine, wrong = None, None
    try:
        mine = do()
    except (OSError, ValueError) as error:
        wrong = error
    said = [wrong]
    if group.size() > 1:
        said = [None] * group.size()
        dist.all_gather_object(said, wrong, group=group)
    for error in filter(None, said):
        raise error
    return mine


def _together(group: dist.ProcessGroup, do: Callable[..., Any], *given: Any, **named: Any) -> None:
    """Do it on all ranks; what is wrong on one of them is raised on all."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            do(*given, **named, process_group=group, no_dist=group.size() == 1)
    except CheckpointException as failed:
        rank = min(failed.failures)
        raise failed.failures[rank][0] from None
