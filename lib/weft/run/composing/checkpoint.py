"""Checkpoints of a trainer: a rank writes what it holds, and any layout can load it.

Files, digests and the pointer to what is whole are those of weft.run.zero.checkpoint. A tensor
that is cut is there in parts, NAME@0, NAME@1 …, and the manifest says which columns each has. So
nothing in it speaks of ranks: the whole is put together tensor by tensor, and cut anew.
"""

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from weft.run.composing.parts import CutPart, columns_of, parts_of
from weft.run.composing.stages import Stage
from weft.run.composing.whole import renamed
from weft.run.tensor import cuts
from weft.run.zero import DataParallel
from weft.run.zero.checkpoint import (
    Flat,
    agreed_on,
    collected,
    fits,
    gathered,
    misfits_of_settings,
    read,
    read_parts,
    settings,
    take,
    write,
)

Shapes = dict[str, list[int]]  # by a tensor's name in the whole decoder


def save(
    folder: Path,
    group: dist.ProcessGroup,
    stages: Sequence[Stage],
    shapes: Shapes,
    step: int,
    first: bool,
) -> None:
    """Write what all ranks have, in place of the checkpoint that is in the folder.

    Of what all tensor ranks have, those that are `first` of them tell.
    """
    held: dict[str, Flat] = {}
    told: dict[str, Any] = {"shapes": {}, "cuts": {}}
    for stage in stages:
        parts, cut = parts_of(stage.module), cuts(stage.module)
        for zero in stage.zeros:
            for where, flat in collected(zero).items():
                if first or where.rpartition("/")[2] in cut:
                    held[_saved_name(where, stage, parts)] = flat
            for name, shape in zero.shapes().items():
                told["shapes"][_saved_name(f"weights/{name}", stage, parts)] = list(shape)
        for name, part in parts.items():
            where = _saved_name(f"weights/{name}", stage, parts).removeprefix("weights/")
            told["cuts"][where] = {"dim": part.dim, "runs": part.runs}
    manifest: dict[str, Any] = {"step": step, "extra": None, "decoder": shapes}
    manifest |= settings(stages[0].zeros[0])
    for key in told:
        manifest[key] = {k: v for one in gathered(group, told[key]) for k, v in one.items()}
    write(folder, group, manifest, lambda: held)


def load(folder: Path, group: dist.ProcessGroup, stages: Sequence[Stage], shapes: Shapes) -> int:
    """Make a trainer's stages what was saved, under whatever layout; which step that was.

    ValueError names what is missing, damaged or does not fit, and nothing has changed then.
    """
    place, manifest = read(folder, group)
    zero = stages[0].zeros[0]
    agreed_on(group, lambda: fits(place, _misfits(zero, manifest, shapes)))
    saved = Saved(place, manifest)
    found = agreed_on(
        group, lambda: [(zero, saved.of(zero, stage)) for stage in stages for zero in stage.zeros]
    )
    for zero, parts in found:
        take(zero, parts, manifest)
    return manifest["step"]


class Saved:
    """A checkpoint's tensors, each put together from its parts when it is asked for."""

    def __init__(self, place: Path, manifest: dict[str, Any]):
        self._place, self._manifest = place, manifest
        self._parts: dict[str, list[str]] = {}
        for where in manifest["shapes"]:
            where = where.removeprefix("weights/")
            self._parts.setdefault(where.partition("@")[0], []).append(where)
        kinds = (where.split("/") for where in manifest["tensors"])
        self._kinds = sorted({"/".join(kind[:-1]) for kind in kinds})

    def of(self, zero: DataParallel, stage: Stage) -> dict[str, Flat]:
        """What a zero's pieces are to be, by the names that they have there."""
        parts, found = parts_of(stage.module), {}
        for name, start, parameter in zero.pieces():
            whole_name = renamed(name, stage.place)
            for kind in self._kinds:
                value = self._whole(kind, whole_name)
                if value is None:
                    continue
                if kind.startswith(("scalar", "number")):
                    found[f"{kind}/{name}"] = Flat(value, 0, 1)
                    continue
                mine = parts[name].of(value) if name in parts else value
                mine = mine.flatten()[start : start + parameter.numel()].clone()
                found[f"{kind}/{name}"] = Flat(mine, start, parameter.numel())
        return found

    def _whole(self, kind: str, name: str) -> Tensor | None:
        """A whole tensor, or a scalar of the whole; None of a kind that was not kept of it."""
        names = [one for one in self._parts[name] if f"{kind}/{one}" in self._manifest["tensors"]]
        if not names:
            return None
        if kind.startswith(("scalar", "number")):
            return self._read(f"{kind}/{names[0]}")
        if "@" not in names[0]:
            return self._read(f"{kind}/{name}").view(self._manifest["decoder"][name])
        whole = None
        for one in names:
            cut, shape = self._manifest["cuts"][one], self._manifest["shapes"][f"weights/{one}"]
            part = self._read(f"{kind}/{one}").view(shape)
            if whole is None:
                whole = part.new_empty(self._manifest["decoder"][name])
            whole.index_copy_(cut["dim"], columns_of(cut["runs"]), part)
        return whole

    def _read(self, where: str) -> Tensor:
        kept = self._manifest["tensors"][where]
        room = torch.empty(kept["numel"], dtype=getattr(torch, kept["dtype"]))
        read_parts(self._place, {where: kept}, {where: Flat(room, 0, kept["numel"])})
        return room


def _saved_name(where: str, stage: Stage, parts: dict[str, CutPart]) -> str:
    """What a checkpoint calls KIND/NAME of a stage."""
    kind, _, name = where.rpartition("/")
    end = f"@{parts[name].index}" if name in parts else ""
    return f"{kind}/{renamed(name, stage.place)}{end}"


def _misfits(zero: DataParallel, manifest: dict[str, Any], shapes: Shapes) -> Iterator[str]:
    """What a checkpoint has that this decoder or optimizer has otherwise, or that cannot be."""
    decoder = manifest.get("decoder")
    if not isinstance(decoder, dict) or not isinstance(manifest.get("cuts"), dict):
        yield "a checkpoint of another program than weft.run.composing.Trainer"
        return
    for name in sorted(shapes.keys() | decoder.keys()):
        if name not in decoder:
            yield f"no {name}, which the decoder has"
        elif name not in shapes:
            yield f"{name}, which the decoder has not"
        elif decoder[name] != shapes[name]:
            yield f"{name} of shape {decoder[name]}, the decoder's is {shapes[name]}"
    yield from _wrong_cuts(manifest)
    first = zero.buckets[0]
    kept_in = first.weights if first.masters is None else first.masters
    dtype = str(kept_in.dtype).removeprefix("torch.")
    for where, kept in manifest["tensors"].items():
        if where.startswith("weights/") and kept["dtype"] != dtype:
            yield f"{where} in {kept['dtype']}, the decoder's is in {dtype}"
    yield from misfits_of_settings(zero, manifest)


def _wrong_cuts(manifest: dict[str, Any]) -> Iterator[str]:
    """Tensors whose parts are not all of their columns, each once."""
    decoder, cuts = manifest["decoder"], manifest["cuts"]
    found: dict[str, list] = {name: [] for name in decoder}
    for where, shape in manifest["shapes"].items():
        one = where.removeprefix("weights/")
        name, at, _ = one.partition("@")
        if name not in found or bool(at) != (one in cuts):
            yield f"{one}, which is no part of the decoder"
            return
        whole, dim, runs = decoder[name], None, [[0, 1]]
        if at:
            dim, runs = cuts[one]["dim"], cuts[one]["runs"]
            fine = dim in range(len(whole)) and all(
                type(end) is int and 0 <= first < end <= whole[dim] for first, end in runs
            )
            width = sum(end - first for first, end in runs) if fine else -1
            whole = [width if i == dim else size for i, size in enumerate(whole)]
        if list(shape) != whole:
            yield f"{one} of shape {shape}, which does not fit its columns"
            return
        found[name].append((dim, runs))
    for name, parts in found.items():
        dims = {dim for dim, _ in parts}
        runs = sorted(run for _, some in parts for run in some)
        most = 1 if dims == {None} else decoder[name][min(dims)] if len(dims) == 1 else -1
        ends = [0, *(end for _, end in runs)]
        if [*(first for first, _ in runs), most] != ends or not prod(decoder[name]):
            yield f"{name} with columns missing, or there twice"
