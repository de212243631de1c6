"""Checkpoints of ZeRO: every rank writes what it keeps, and any number of ranks can load it.

    save(folder, zero, step)          # on every rank, between two steps
    step, extra = load(folder, zero)  # on any number of ranks, at any stage, with any buckets

A save that is killed at any moment leaves the checkpoint before it as it was. What is read is
checked first, and zero is changed only when all ranks have read all of theirs. From its first save
on, or from `claim`, a program is the only one that saves into a folder.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist
from torch import Tensor

from weft.plan.arguments import instance, whole
from weft.plan.zero.checkpoint import written
from weft.run.world import World
from weft.run.zero.checkpoint import files, state
from weft.run.zero.checkpoint.manifest import checked
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
    finds; what was left lying goes with the next save, and nothing else does. An
    OSError names the file, ValueError what does not fit, or that another program saves
    there, or that the folder has checkpoints and no `latest`.
    """
    instance((str, Path), folder=folder)
    instance(DataParallel, zero=zero)
    step, group = whole("step", step, least=0), zero.update.group
    extra = agreed_on(group, lambda: _plain("extra", extra if zero.rank == 0 else None))
    manifest = {"step": step, "extra": extra, "ranks": zero.n, "stage": zero.stage}
    manifest |= {"shapes": state.described(zero)} | settings(zero)
    write(folder, group, manifest, lambda: state.collected(zero))


def write(
    folder: str | Path,
    group: dist.ProcessGroup,
    manifest: dict[str, Any],
    collect: Callable[[], dict[str, state.Flat]],
) -> None:
    """Write a checkpoint of what each rank of a group has collected, each element once.

    `manifest` is what it says besides, with the shape of each of the tensors.
    """
    folder, rank = Path(folder), group.rank()
    mine = agreed_on(group, collect)
    held, tensors = _known(group, mine)
    plan = written(held, {name: tensor["numel"] for name, tensor in tensors.items()})[rank]
    place = _on_first(group, lambda: files.begin(folder, manifest["step"]))
    records = agreed_on(group, lambda: files.write_parts(place, rank, mine, plan))
    for name, record in (item for rank in gathered(group, records) for item in rank.items()):
        tensors[name]["parts"].append(record)
    _on_first(group, lambda: files.publish(place, manifest | {"tensors": tensors}))


def load(folder: str | Path, zero: DataParallel) -> Loaded:
    """Make zero what it was when the folder's checkpoint was saved; step and extra.

    Every rank calls it. The module must have parameters of the same names, shapes and
    dtype, and the optimizer be of the same class; how many ranks there are, the stage
    and the size of buckets are free. Weights and the optimizer's state are the same
    to the bit.

    ValueError says which file is missing, cut short or damaged, or what does not fit,
    OSError which cannot be read; then nothing of zero has changed.
    """
    instance((str, Path), folder=folder)
    instance(DataParallel, zero=zero)
    group = zero.update.group
    place, manifest = read(folder, group)
    fits(place, _misfits(zero, manifest))
    parts = state.wanted(zero, manifest["tensors"])
    agreed_on(group, lambda: files.read_parts(place, manifest["tensors"], parts))
    take(zero, parts, manifest)
    return Loaded(manifest["step"], manifest["extra"])


def read(folder: str | Path, group: dist.ProcessGroup) -> tuple[Path, dict[str, Any]]:
    """Where a folder's checkpoint lies, and its manifest, on every rank of a group."""
    place, data = _on_first(group, lambda: files.opened(Path(folder)))
    return place, checked(data, place)


def take(zero: DataParallel, parts: dict[str, state.Flat], manifest: dict[str, Any]) -> None:
    """Make a zero what was read, with the settings of its optimizer and scaler."""
    state.restore(zero, parts)
    state.take_options(zero, manifest["options"])
    if zero.update.scaler is not None and manifest["scaler"] is not None:
        zero.update.scaler.load_state_dict(manifest["scaler"])


def exists(folder: str | Path) -> bool:
    """Whether a save into this folder has ever been completed; ValueError where nobody can know."""
    instance((str, Path), folder=folder)
    return files.pointed(Path(folder)) is not None


def claim(folder: str | Path, world: World) -> None:
    """Keep others from saving into a folder until this program ends, as the first `save` does.

    Every rank calls it. ValueError where another program has the folder. The system ends
    it with rank 0's process, however that ends; where a file system cannot lock folders,
    as NFS, it does nothing.
    """
    instance((str, Path), folder=folder)
    instance(World, world=world)
    _on_first(world.group(), lambda: files.claim(Path(folder)))


def settings(zero: DataParallel) -> dict[str, Any]:
    """What the manifest says of a zero's optimizer and scaler."""
    scaler = zero.update.scaler
    return {
        "optimizer": type(zero.optimizer).__name__,
        "options": _plain("the optimizer's settings", state.options(zero)),
        "scaler": None if scaler is None else scaler.state_dict(),
    }


def fits(place: Path, misfits: Iterator[str]) -> None:
    """ValueError for the first of what the checkpoint has otherwise, if there is any."""
    for misfit in misfits:
        raise ValueError(f"{place} has {misfit}; nothing was loaded")


def _misfits(zero: DataParallel, manifest: dict[str, Any]) -> Iterator[str]:
    """What the checkpoint has that this module or optimizer has otherwise."""
    here, there = state.described(zero), manifest["shapes"]
    for where in sorted(here.keys() | there.keys()):
        _, _, name = where.partition("/")
        if where not in there:
            yield f"no {name}, which the module has"
        elif where not in here:
            yield f"{name}, which the module has not"
        elif here[where] != there[where]:
            yield f"{name} of shape {there[where]}, the module's is {here[where]}"
    for bucket in zero.buckets:
        kept = bucket.weights if bucket.masters is None else bucket.masters
        dtype = str(kept.dtype).removeprefix("torch.")
        for name in bucket.names:
            saved = manifest["tensors"][f"weights/{name}"]["dtype"]
            if saved != dtype:
                yield f"{name} in {saved}, the optimizer's is in {dtype}"
    yield from misfits_of_settings(zero, manifest)


def misfits_of_settings(zero: DataParallel, manifest: dict[str, Any]) -> Iterator[str]:
    """What it has of an optimizer or a scaler that this one's cannot take."""
    kind, saved = type(zero.optimizer).__name__, manifest["optimizer"]
    if kind != saved:
        yield f"the state of {saved}, the optimizer is of class {kind}"
    groups, saved = zero.optimizer.param_groups, manifest["options"]
    if len(groups) != len(saved):
        yield f"{len(saved)} groups of parameters, the optimizer has {len(groups)}"
    for group, there in zip(groups, saved, strict=False):
        for key in group.keys() & there.keys():
            if not _alike(group[key], there[key]):
                yield f"{key} = {there[key]!r}, the optimizer's is {group[key]!r}"
    scaler = zero.update.scaler.state_dict() if zero.update.scaler else {}
    for key, value in scaler.items() if manifest["scaler"] is not None else ():
        if not _alike(value, manifest["scaler"].get(key)):
            yield f"a scaler's {key} = {manifest['scaler'].get(key)!r}, this one's is {value!r}"


def _alike(here: Any, there: Any) -> bool:
    """Whether a setting that was saved can take the place of one."""
    if isinstance(here, tuple):
        fits = isinstance(there, list) and len(here) == len(there)
        return fits and all(map(_alike, here, there))
    if isinstance(here, int | float | Tensor) and not isinstance(here, bool):
        return isinstance(there, int | float) and not isinstance(there, bool)
    return True


def _plain(what: str, value: Any) -> Any:
    """The value, if JSON gives it back as it is (a tuple as a list)."""
    try:
        return json.loads(json.dumps([value]))[0]  # one deeper, as the manifest will have it
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} must be what JSON can hold: {error}") from None


# --- all ranks, or none ---------------------------------------------------------------------------


def _known(
    group: dist.ProcessGroup, mine: dict[str, state.Flat]
) -> tuple[list[dict[str, range]], dict[str, dict[str, Any]]]:
    """Which elements each rank has of each tensor; and all tensors, still without parts."""
    told = {
        name: (flat.elements, str(flat.tensor.dtype).removeprefix("torch."), flat.numel)
        for name, flat in mine.items()
    }
    held, tensors = [], {}
    for rank in gathered(group, told):
        held.append({name: elements for name, (elements, _, _) in rank.items()})
        for name, (_, dtype, numel) in rank.items():
            tensors.setdefault(name, {"dtype": dtype, "numel": numel, "parts": []})
    return held, tensors


def _on_first(group: dist.ProcessGroup, do: Callable[[], T]) -> T:
    """What rank 0 gets by doing it, on every rank; or its error, on every rank."""
    return gathered(group, agreed_on(group, do if group.rank() == 0 else lambda: None))[0]


def agreed_on(group: dist.ProcessGroup, do: Callable[[], T]) -> T:
    """What this rank gets by doing it, unless it fails on one: then that error, on every rank."""
    mine, wrong = None, None
    try:
        mine = do()
    except Exception as error:
        wrong = error
    for error in filter(None, gathered(group, wrong)):
        raise error
    return mine


def gathered(group: dist.ProcessGroup, mine: T) -> list[T]:
    """What each rank has, by rank."""
    if group.size() == 1:
        return [mine]
    found: list[Any] = [None] * group.size()
    dist.all_gather_object(found, mine, group=group)
    return found
