"""A checkpoint on the disk: raw bytes, a manifest with a digest of each part, and a pointer.

    FOLDER/latest                      which one is whole, and the digest of its manifest
    FOLDER/step-00000012/manifest.json what is where
    FOLDER/step-00000012/rank-0003.bin what rank 3 wrote

Everything is written beside what is there, into a folder whose name ends in .partial, and made
durable. Renaming the folder, then the pointer, is what makes it count; only then an older one goes.
So at any moment `latest` names a checkpoint that is whole. Nothing in it is a program: no pickle.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from weft.plan.zero.checkpoint import sources
from weft.run.files import digest, read, replace, sync, writing
from weft.run.zero.checkpoint.state import Flat

FORMAT, POINTER, MANIFEST, PARTIAL = 2, "latest", "manifest.json", ".partial"
PLACE = re.compile(r"step-\d{8,}(\.\d+)?")
FILE = re.compile(r"rank-\d{4,}\.bin")
DIGEST = re.compile(r"[0-9a-f]{32}")

Records = dict[str, list]  # by a tensor's name: a part's first element, file, place, bytes, digest


# --- writing --------------------------------------------------------------------------------------


def begin(folder: Path, step: int) -> Path:
    """A new empty folder to write into; what a broken save has left goes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob(f"*{PARTIAL}"):
        if PLACE.fullmatch(left.name.removesuffix(PARTIAL)) and not left.is_symlink():
            shutil.rmtree(left)
    name, again = f"step-{step:08d}", 0
    while os.path.lexists(folder / name):  # the same step once more, after a restart
        again += 1
        name = f"step-{step:08d}.{again}"
    place = folder / f"{name}{PARTIAL}"
    place.mkdir(mode=0o700)
    return place


def write_parts(
    place: Path, rank: int, held: Mapping[str, Flat], planned: Mapping[str, range]
) -> Records:
    """Write the planned elements one tensor behind the other; they are on the disk then."""
    name, records, at = f"rank-{rank:04d}.bin", {}, 0
    if not planned:
        return records
    with writing(place / name) as write:
        for where, elements in planned.items():
            part = held[where].part(elements).detach().cpu().contiguous()
            data = memoryview(part.view(torch.uint8).numpy())
            write(data)
            records[where] = [elements.start, name, at, len(data), digest(data)]
            at += len(data)
    return records


def publish(place: Path, manifest: dict[str, Any]) -> None:
    """Make of a partial folder the checkpoint that is loaded, and drop the others.

    Whenever this is interrupted, the pointer names the old one, which is whole, or
    the new one, which is.
    """
    folder, data = place.parent, json.dumps(manifest, separators=(",", ":")).encode()
    with writing(place / MANIFEST) as write:
        write(data)
    sync(place)
    whole = place.with_name(place.name.removesuffix(PARTIAL))
    os.rename(place, whole)
    pointer = {"format": FORMAT, "place": whole.name, "manifest": digest(data)}
    replace(folder / POINTER, json.dumps(pointer).encode() + b"\n")
    for other in folder.iterdir():
        if PLACE.fullmatch(other.name) and not other.is_symlink() and other != whole:
            shutil.rmtree(other)


# --- reading --------------------------------------------------------------------------------------


def opened(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The newest whole checkpoint of a folder, and its manifest; ValueError for any damage."""
    pointer = folder / POINTER
    if not pointer.exists():
        raise ValueError(f"{folder} has no checkpoint: there is no file {POINTER} in it")
    try:
        said = json.loads(read(pointer))
        name, right = said["place"], said["manifest"]
        fine = said["format"] == FORMAT and PLACE.fullmatch(name) and DIGEST.fullmatch(right)
    except (ValueError, KeyError, TypeError):
        fine = False
    if not fine:
        raise ValueError(
            f"{pointer} is damaged, or of another format than {FORMAT}: it must name a folder "
            f"beside it and the digest of its {MANIFEST}; the folders beside it have not been "
            "touched"
        )
    data = _read(folder / name / MANIFEST)
    if digest(data) != right:
        raise ValueError(
            f"{folder / name / MANIFEST} is damaged: its digest is not what {pointer} says; "
            "nothing was loaded"
        )
    return folder / name, json.loads(data)


def read_parts(
    place: Path, tensors: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Flat]
) -> None:
    """Fill what is wanted from all parts that have some of it, each read whole and checked."""
    for where, flat in wanted.items():
        dtype, records = flat.tensor.dtype, tensors[where]["parts"]
        parts = [range(r[0], r[0] + r[3] // dtype.itemsize) for r in records]
        for i, elements in sources(flat.elements, parts):
            data = torch.frombuffer(bytearray(_read_part(place, *records[i][1:])), dtype=dtype)
            flat.part(elements).copy_(Flat(data, parts[i].start, flat.numel).part(elements))


def _read_part(place: Path, name: str, start: int, size: int, right: str) -> bytes:
    """A part of a file that has the digest it must have; ValueError names the file if not."""
    path = place / name
    if not FILE.fullmatch(name):
        raise ValueError(f"{place / MANIFEST} names a file {name!r}, must name those beside it")
    data = _read(path, start, size)
    if len(data) < size:
        raise ValueError(
            f"{path} is cut short: it has {path.stat().st_size:,} bytes, must have "
            f"{start + size:,} at least; nothing was loaded"
        )
    if digest(data) != right:
        raise ValueError(
            f"{path} is damaged: the digest of the {size:,} bytes from {start:,} on is wrong; "
            "nothing was loaded"
        )
    return data


def _read(path: Path, start: int = 0, size: int | None = None) -> bytes:
    """A file's bytes, or some of them; ValueError if there is none, and a link is not followed."""
    try:
        return read(path, start, size)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; nothing was loaded") from None
