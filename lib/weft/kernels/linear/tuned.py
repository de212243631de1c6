"""The tiles that the passes of linear attention are launched with: data, by pass and width.

Chosen by the machine code, before any GPU had run them: the largest of which nothing spills in
half precision, or nearly nothing. Tiles of the pass for the states are smaller than they
could be: each has a program of its own, and there are few.
"""

from typing import NamedTuple

from weft.kernels.attention import INTERPRETER


class ChunkTile(NamedTuple):
    """Columns of K and of V in a tile; warps; stages of loads.

    And the registers of a thread, where the assembler left alone takes fewer and spills.
    """

    k: int
    v: int
    warps: int = 4
    stages: int = 2
    registers: int | None = None

    def options(self) -> dict[str, int]:
        """What Triton is told besides the arguments of a kernel."""
        options = {"num_warps": self.warps, "num_stages": self.stages}
        return options | ({"maxnreg": self.registers} if self.registers else {})


def tile(target: str, name: str, size: int, chunk: int, K: int, V: int) -> ChunkTile:
    """The tile of one pass for elements of `size` bytes, no wider than the padded widths.

    Chunks of more than 64 tokens have twice the warps.
    """
    one = TILES.get((target, name), TILES[name])
    if target == INTERPRETER or size == 4:
        one = SINGLE._replace(v=min(SINGLE.v, one.v), stages=min(SINGLE.stages, one.stages))
    if chunk > 64:
        one = one._replace(k=min(one.k, 32), v=min(one.v, 64), warps=8)
    return one._replace(k=min(one.k, K), v=min(one.v, V))


SINGLE = ChunkTile(32, 32, 8, 2, 255)  # of fp32, whose products are not for tensor cores
TILES = {  # pass, or chip and pass: a tile
    "fused": ChunkTile(256, 32, 8, 1),
    "left": ChunkTile(64, 16, 4, 1),
    "states": ChunkTile(64, 64, 8, 3),
    "dstates": ChunkTile(64, 64, 8, 3),
    "output": ChunkTile(64, 128, 4, 3),
    "dq": ChunkTile(64, 128, 4, 3),
    "dk": ChunkTile(64, 128, 4, 3),
    "dv": ChunkTile(64, 128, 4, 3),
    "decay": ChunkTile(32, 64, 8, 2),
    "channel output": ChunkTile(32, 128, 8, 2),
    "channel dv": ChunkTile(32, 128, 8, 2),
    "channel dqkg": ChunkTile(32, 64, 8, 2),
    ("sm_80", "channel dqkg"): ChunkTile(16, 64, 8, 2),  # 40 bytes a thread spill, else 870
    "inverse": ChunkTile(64, 64, 4, 2),
    "written": ChunkTile(256, 32, 4, 2),
    "written, wide": ChunkTile(256, 16, 8, 1),
    "inside": ChunkTile(64, 64, 4, 3),
    "flows": ChunkTile(256, 32, 8, 2),
    "flows, wide": ChunkTile(256, 16, 8, 1),
    "delta dv": ChunkTile(64, 64, 4, 1),
    "delta dqk": ChunkTile(32, 32, 8, 2),
    ("sm_80", "delta dqk"): ChunkTile(16, 32, 8, 1),
}
