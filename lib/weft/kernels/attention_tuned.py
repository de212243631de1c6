"""The tiles that attention's kernels are launched with: data, by chip, pass, type and width."""

from typing import NamedTuple

import torch
from triton import knobs

WIDEST = 256  # of a head
INTERPRETER = "interpreter"


class Tile(NamedTuple):
    """Queries and keys of a tile; its streaming length at an edge; warps; stages of loads."""

    q: int
    k: int
    edge: int
    warps: int = 4
    stages: int = 2


def padded(width: int) -> int:
    """The width of a tile in registers: a power of two, and at least what a tensor core takes."""
    return max(16, 1 << (width - 1).bit_length())


def chip(device: torch.device) -> str:
    """Which column of the table holds for a device: a compilation target, or the interpreter."""
    if knobs.runtime.interpret:
        return INTERPRETER
    if device.type != "cuda":
        raise ValueError(f"q is on {device}, must be on a CUDA device, or TRITON_INTERPRET=1")
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        raise ValueError(f"q is on a chip of capability {major}.{minor}, must be at least 8.0")
    return {8: "sm_80", 9: "sm_90", 10: "sm_100"}.get(major, "sm_80")


def tile(target: str, name: str, size: int, width: int) -> Tile:
    """The tile of one pass, for elements of `size` bytes and the larger of the two widths."""
    if target == "interpreter":
        return Tile(32, 32, 32)
    return Tile(128, 64, 32, 8, 2) if size == 2 else Tile(32, 32, 32)
