"""The tiles that attention's kernels are launched with: data, by chip, pass, type and width.

Chosen by the machine code, before any GPU had run them: of the tiles of which nothing spills and
three stages fit into shared memory (with two, a tile's loads are waited for as soon as they are
issued), the largest, because what streams past a tile is read once for each tile. On Hopper the
pass for dQ at width 256 has two stages: with 64 queries instead of 128, each warpgroup's products
are 16 keys wide, and reading their factors from shared memory takes longer than multiplying them.
"""

from typing import NamedTuple

import torch
from triton import knobs

from weft.kernels.code import recorded_target

WIDEST = 256  # of a head
INTERPRETER = "interpreter"
SMALL = "small"  # GeForce and the like: less than 100 KiB of shared memory


class KernelTile(NamedTuple):
    """Queries and keys of a tile; its streaming length at an edge; warps; stages of loads.

    And the registers of a thread, where the assembler left alone takes fewer and spills.
    """

    q: int
    k: int
    edge: int
    warps: int = 4
    stages: int = 2
    registers: int | None = None

    def options(self) -> dict[str, int]:
        """What Triton is told besides the arguments of a kernel."""
        options = {"num_warps": self.warps, "num_stages": self.stages}
        return options | ({"maxnreg": self.registers} if self.registers else {})


def chip(device: torch.device) -> str:
    """Which column of the table holds for a device: a compilation target, or the interpreter."""
    if target := recorded_target():
        return target
    if knobs.runtime.interpret:
        return INTERPRETER
    if device.type != "cuda":
        raise ValueError(f"q is on {device}, must be on a CUDA device, or TRITON_INTERPRET=1")
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        raise ValueError(f"q is on a chip of capability {major}.{minor}, must be at least 8.0")
    if (major, minor) == (8, 0):
        return "sm_80"
    return {9: "sm_90", 10: "sm_100"}.get(major, SMALL)


def tile(target: str, name: str, size: int, width: int) -> KernelTile:
    """The tile of one pass, for elements of `size` bytes and the larger of the two widths."""
    if target == INTERPRETER:
        return KernelTile(32, 32, 32)
    if target == SMALL:
        one = tile("sm_80", name, size, width)
        if name == "fa1":  # its warps share out the keys
            return one
        return one._replace(
            **{side: max(16, getattr(one, side) // 2) for side in ("q", "k", "edge")}
        )
    row = min(w for n, s, w in TILES if (n, s) == (name, size) and w >= width)
    return KernelTile(*TILES[name, size, row][TARGETS.index(target)])


def in_window(target: str, name: str, size: int, width: int) -> KernelTile:
    """The tile of one pass with a window, whose third loop may need more registers."""
    given = WINDOWED.get((target, name, size, width))
    return KernelTile(*given) if given else tile(target, name, size, width)


TARGETS = "sm_80", "sm_90", "sm_100"  # A100; H100 and H200; B200
TILES = {  # pass, bytes of an element, up to which padded width: a tile for each target
    ("forward", 2, 64): ((128, 64, 64, 4, 3), (128, 64, 64, 4, 3), (128, 128, 64, 8, 3)),
    ("forward", 2, 128): ((128, 64, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 8, 3)),
    ("forward", 2, 256): ((64, 32, 32, 8, 3), (64, 64, 64, 8, 3), (64, 64, 64, 8, 3)),
    ("dq", 2, 32): ((128, 128, 64, 8, 3),) * 3,
    ("dq", 2, 64): ((128, 64, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 8, 3)),
    ("dq", 2, 128): ((128, 32, 32, 8, 3), (128, 64, 64, 8, 3), (128, 64, 64, 8, 3, 255)),
    ("dq", 2, 256): ((64, 32, 32, 8, 3), (128, 32, 32, 8, 2), (64, 32, 32, 8, 3)),
    ("dkdv", 2, 32): ((128, 128, 64, 8, 3),) * 3,
    ("dkdv", 2, 64): ((64, 128, 32, 8, 3), (64, 128, 64, 8, 3), (128, 128, 64, 8, 3)),
    ("dkdv", 2, 128): ((64, 64, 32, 8, 3), (64, 128, 32, 8, 3), (64, 128, 64, 8, 3)),
    ("dkdv", 2, 256): ((32, 64, 32, 8, 3), (16, 64, 16, 8, 3), (32, 64, 32, 8, 3)),
    ("delta", 2, 256): ((64, 16, 16, 8, 1),) * 3,
    ("fa1", 2, 64): ((16, 64, 64, 4, 1), (32, 64, 64, 4, 1), (32, 64, 64, 4, 1)),
    ("fa1", 2, 128): ((32, 64, 64, 4, 1),) * 3,
    ("fa1", 2, 256): ((16, 64, 64, 4, 1),) * 3,
    ("naive", 2, 128): ((128, 64, 64, 8, 3),) * 3,
    ("naive", 2, 256): ((64, 64, 64, 8, 3),) * 3,
    ("forward", 4, 64): ((32, 32, 32, 8, 3, 255),) * 3,
    ("forward", 4, 128): ((32, 16, 16, 8, 3, 255),) * 3,
    ("forward", 4, 256): ((32, 32, 32, 8, 2, 255),) * 3,
    ("dq", 4, 128): ((32, 32, 32, 8, 3, 255),) * 3,
    ("dq", 4, 256): ((32, 32, 32, 8, 2, 255),) * 3,
    ("dkdv", 4, 128): ((32, 32, 32, 8, 3, 255),) * 3,
    ("dkdv", 4, 256): ((16, 16, 16, 8, 2, 255),) * 3,
    ("delta", 4, 256): ((64, 16, 16, 8, 1, 255),) * 3,
    ("fa1", 4, 128): ((16, 64, 64, 4, 1, 255),) * 3,
    ("fa1", 4, 256): ((16, 32, 32, 2, 1, 255),) * 3,  # spills, and what is larger does not fit
    ("naive", 4, 256): ((32, 32, 32, 8, 2, 255),) * 3,
}
WINDOWED = {  # chip, pass, bytes of an element, padded width: where the dense tile would spill
    ("sm_80", "forward", 2, 64): (128, 64, 64, 8, 3),
    ("sm_80", "dkdv", 2, 256): (16, 64, 16, 8, 3),
}
