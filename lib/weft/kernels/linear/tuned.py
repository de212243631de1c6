"""The tiles that the passes of linear attention are launched with: data, by pass and width.

Chosen by the machine code, before any GPU had run them: nothing spills.
"""

from typing import NamedTuple

from weft.kernels.attention.tuned import INTERPRETER


class ChunkTile(NamedTuple):
    """Columns of K and of V in a tile; warps; stages of loads."""

    k: int
    v: int
    warps: int = 4
    stages: int = 2

    def options(self) -> dict[str, int]:
        """What Triton is told besides the arguments of a kernel."""
        return {"num_warps": self.warps, "num_stages": self.stages}


def tile(target: str, name: str, size: int, K: int, V: int) -> ChunkTile:
    """The tile of one pass for elements of `size` bytes, no wider than the padded widths."""
    one = ChunkTile(32, 32) if target == INTERPRETER or size == 4 else TILES[name]
    return one._replace(k=min(one.k, K), v=min(one.v, V))


TILES = {  # pass: a tile
    "left": ChunkTile(64, 16, 4, 1),
    "states": ChunkTile(64, 64, 4, 3),
    "dstates": ChunkTile(64, 64, 4, 3),
    "output": ChunkTile(64, 128, 4, 3),
    "dq": ChunkTile(64, 128, 4, 3),
    "dk": ChunkTile(64, 128, 4, 3),
    "dv": ChunkTile(64, 128, 4, 3),
    "decay": ChunkTile(64, 64, 8, 2),
    "channel output": ChunkTile(64, 128, 8, 2),
    "channel dv": ChunkTile(64, 128, 8, 2),
    "channel dqkg": ChunkTile(64, 64, 8, 2),
}
