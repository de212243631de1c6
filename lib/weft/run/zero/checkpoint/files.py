"""A checkpoint on the disk: raw bytes, a manifest with a checksum of each part, and a pointer.

    FOLDER/latest                      which one is whole, and the checksum of its manifest
    FOLDER/step-00000012/manifest.json what is where
    FOLDER/step-00000012/rank-0003.bin what rank 3 wrote

Everything is written beside what is there, under a name that ends in .partial, and made durable.
Renaming the folder, then the pointer, is what makes it count; only then an older one goes. So at
any moment `latest` names a checkpoint that is whole. Nothing in it is a program: no pickle.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

FORMAT, POINTER, MANIFEST, PARTIAL = 1, "latest", "manifest.json", ".partial"
PLACE = re.compile(r"step-\d{8,}(\.\d+)?")
FILE = re.compile(r"rank-\d{4,}\.bin")
DIGEST = re.compile(r"[0-9a-f]{32}")


def digest(data: bytes | memoryview) -> str:
    """A checksum that no accident repeats: BLAKE2b, 128 bits."""
    return blake2b(data, digest_size=16).hexdigest()


# --- writing --------------------------------------------------------------------------------------


def begin(folder: Path, step: int) -> Path:
    """A new empty folder to write into; what a broken save has left goes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob(f"*{PARTIAL}"):
        name = left.name.removesuffix(PARTIAL)
        if name == POINTER:
            left.unlink()
        elif PLACE.fullmatch(name) and not left.is_symlink():
            shutil.rmtree(left)
    name, again = f"step-{step:08d}", 0
    while os.path.lexists(folder / name):  # the same step once more, after a restart
        again += 1
        name = f"step-{step:08d}.{again}"
    place = folder / f"{name}{PARTIAL}"
    place.mkdir(mode=0o700)
    return place


@contextmanager
def create(path: Path) -> Iterator[Callable[[bytes | memoryview], None]]:
    """Write a new file, on the disk when this ends; an error names the file.

    It is private to the user. One that is there already, or a link, is an error.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    handle = os.open(path, flags, 0o600)

    def write(data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:  # a write may take less than it is given
            left = left[os.write(handle, left) :]

    try:
        yield write
        os.fsync(handle)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        os.close(handle)


def publish(place: Path, manifest: dict[str, Any]) -> None:
    """Make of a partial folder the checkpoint that is loaded, and drop the others.

    Whenever this is interrupted, the pointer names the old one, which is whole, or
    the new one, which is.
    """
    folder = place.parent
    data = json.dumps(manifest, separators=(",", ":")).encode()
    with create(place / MANIFEST) as write:
        write(data)
    sync(place)
    whole = place.with_name(place.name.removesuffix(PARTIAL))
    os.rename(place, whole)
    sync(folder)
    pointer = {"format": FORMAT, "place": whole.name, "manifest": digest(data)}
    with create(folder / f"{POINTER}{PARTIAL}") as write:
        write(json.dumps(pointer).encode() + b"\n")
    os.replace(folder / f"{POINTER}{PARTIAL}", folder / POINTER)
    sync(folder)
    for other in folder.iterdir():
        ours = PLACE.fullmatch(other.name) and not other.is_symlink()
        if ours and other != whole:
            shutil.rmtree(other)


def sync(folder: Path) -> None:
    """Have the disk know the names in a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
            f"{pointer} is damaged: it must name a folder beside it and the checksum of its "
            f"{MANIFEST}; the folders beside it have not been touched"
        )
    data = read(folder / name / MANIFEST)
    if digest(data) != right:
        raise ValueError(
            f"{folder / name / MANIFEST} is damaged: its checksum is not what {pointer} says; "
            "nothing was loaded"
        )
    return folder / name, json.loads(data)


def read(path: Path, start: int = 0, size: int = -1) -> bytes:
    """A file's bytes, or some of them; no link is followed."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            file.seek(start)
            return file.read(size)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; nothing was loaded") from None


def read_part(place: Path, name: str, start: int, size: int, right: str) -> bytes:
    """A part of a file that has the checksum it must have; ValueError names the file if not."""
    path = place / name
    if not FILE.fullmatch(name):
        raise ValueError(f"{place / MANIFEST} names a file {name!r}, must name those beside it")
    data = read(path, start, size)
    if len(data) < size:
        raise ValueError(
            f"{path} is cut short: it has {path.stat().st_size:,} bytes, must have "
            f"{start + size:,} at least; nothing was loaded"
        )
    if digest(data) != right:
        raise ValueError(
            f"{path} is damaged: the checksum of the {size:,} bytes from {start:,} on is wrong; "
            "nothing was loaded"
        )
    return data
