"""Tensors from a .safetensors file: a header in JSON, then the bytes of all tensors, and no code.

Eight bytes say how long the header is; it says of each tensor its dtype, its shape, and where its
bytes begin and end behind the header. https://github.com/huggingface/safetensors, "Format".
"""

import json
from math import prod
from pathlib import Path

import torch
from torch import Tensor

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def read(path: str | Path) -> dict[str, Tensor]:
    """All tensors of a file by name, on the CPU. ValueError where it is no such file."""
    data = bytearray(Path(path).read_bytes())
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:end]) if end <= len(data) else None
    except ValueError:  # neither JSON nor UTF-8
        header = None
    if not isinstance(header, dict):
        raise ValueError(f"{path} does not begin with a header, must be a .safetensors file")
    return {
        name: _tensor(path, name, each, data, end)
        for name, each in header.items()
        if name != "__metadata__"
    }


def _tensor(path: str | Path, name: str, entry: dict, data: bytearray, start: int) -> Tensor:
    dtype, shape = DTYPES.get(entry["dtype"]), entry["shape"]
    if dtype is None:
        known = ", ".join(DTYPES)
        raise ValueError(f"{name} in {path} is {entry['dtype']}, must be one of {known}")
    first, last = (start + offset for offset in entry["data_offsets"])
    if last > len(data) or last - first != prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} in {path} has {last - first} bytes that do not fit its {shape}")
    if first == last:
        return torch.empty(shape, dtype=dtype)
    # A clone, since the bytes of the file may lie at an address that no kernel could use.
    return torch.frombuffer(data[first:last], dtype=dtype).clone().view(shape)
