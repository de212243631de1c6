"""What a store's folder holds, as a file of JSON: for each tensor its file, form and checksum."""

import json
import re
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch

from weft.run.offload.faults import damaged

FORMAT, FILE = "weft-store/1", "manifest.json"
DATA = re.compile(r"[0-9]{8,}\.[A-Za-z0-9_.-]{0,100}\.bin")  # what files of tensors are called
SHOWN = re.compile(r"[^A-Za-z0-9_.-]")
UNTOLD = "no tensor can be read, though their files may still be there"


class Entry(NamedTuple):
    """One tensor: the file that its bytes lie in, raw and alone, and what they are."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    length: int
    checksum: str = ""

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype itself."""
        return getattr(torch, self.dtype)


class Content(NamedTuple):
    """All that was flushed: tensors by name, the notes, the number that the next file gets."""

    tensors: dict[str, Entry]
    notes: dict[str, Any]
    serial: int


def file_name(serial: int, name: str) -> str:
    """A file's name: never used before in its folder, and it shows whose it is.

    >>> file_name(7, "layer 3/w")
    '00000007.layer_3_w.bin'
    """
    return f"{serial:08d}.{SHOWN.sub('_', name)[:100]}.bin"


def packed(content: Content) -> bytes:
    """As JSON, its own checksum on the first line."""
    tensors = {name: entry._asdict() for name, entry in content.tensors.items()}
    body = {"serial": content.serial, "notes": content.notes, "tensors": tensors}
    text = json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False)
    head = f'{{"format": "{FORMAT}", "checksum": "{zlib.crc32(text.encode()):08x}", "content":'
    return f"{head}\n{text}\n}}\n".encode()


def unpacked(data: bytes, path: Path) -> Content:
    """What `packed` was given; Damaged, with the path, where it is not whole."""
    text = (rest := data.partition(b"\n")[2]).removesuffix(b"\n}\n")
    try:
        whole = json.loads(data)
        if whole["format"] != FORMAT:
            raise damaged(path, f"it is of format {whole['format']!r} and not {FORMAT!r}: {UNTOLD}")
        if f"{zlib.crc32(text):08x}" != whole["checksum"] or text == rest:
            raise ValueError
        body = whole["content"]
        tensors = {name: _entry(**given) for name, given in body["tensors"].items()}
        return Content(tensors, dict(body["notes"]), int(body["serial"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged(path, f"its bytes are not those that were written: {UNTOLD}") from None


def _entry(file: str, dtype: str, shape: list[int], length: int, checksum: str) -> Entry:
    """One that is safe to act on, or ValueError."""
    kind = getattr(torch, dtype, None)
    sizes = tuple(shape)
    whole = all(type(n) is int and n >= 0 for n in (*sizes, length))
    if not isinstance(kind, torch.dtype) or not whole or not DATA.fullmatch(file):
        raise ValueError
    if length != prod(sizes) * kind.itemsize:
        raise ValueError
    return Entry(file, dtype, sizes, length, str(checksum))


def dtype_name(dtype: torch.dtype) -> str:
    """As torch's module calls it.

    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def strays(names: list[str], kept: Mapping[str, Entry]) -> list[str]:
    """Files that a store made and that no tensor lies in any more."""
    used = {entry.file for entry in kept.values()}
    ours = [n for n in names if DATA.fullmatch(n) or n == FILE + ".new"]
    return [name for name in ours if name not in used]
