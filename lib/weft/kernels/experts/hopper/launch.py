"""From tensors to launches on Hopper: tiles, descriptors for the copy engine, blocks that stay."""

import triton
from torch import Tensor

from weft.kernels.attention import padded
from weft.kernels.code import launch
from weft.kernels.experts.grouped import table_kernel
from weft.kernels.experts.groups import Groups
from weft.kernels.experts.hopper.matmul import matmul as kernel
from weft.kernels.hopper import aligned, blocks, described, launch_blocks

ROWS = 128  # of a tile: 64 to each of two warpgroups
DEEP = 64  # of what is summed over, in a turn: as much as the copy engine swizzles
STAGES = {256: 3, 128: 5}  # by columns; beside them shared memory has the tile that leaves
EIGHT = 8  # numbers that the copy engine's 16 bytes hold: widths are multiples


def matmul(
    x: Tensor,
    w: Tensor,
    given: Groups,
    gather: Tensor | None = None,
    scatter: Tensor | None = None,
    relu: bool = False,
    gate: Tensor | None = None,
    name: str = "grouped",
) -> Tensor:
    """x [rows, D] times w [E, D, F], each group of rows with its own matrix: [rows, F]."""
    E, D, F = w.shape
    y = x.new_empty(given.rows, F)
    if not given.rows:
        return y
    x, (w, transposed), columns = aligned(x), as_it_lies(w), columns_of(F)
    box = [1, columns, 1, DEEP] if transposed else [1, DEEP, 1, columns]
    descs = (
        described(w.unsqueeze(2), 0, box),
        described(x[None, :, None], 0, [1, ROWS, 1, DEEP]),
        described(y[None, :, None], 0, [1, ROWS // 2, 1, columns]),
    )
    lists = (x, y, gather, scatter, gate, given.table, given.tiles, given.most)
    widths = (E, D // EIGHT, F // EIGHT, x.stride(0) // EIGHT)
    programs = min(blocks(x.device), given.most * triton.cdiv(F, columns))
    options = {"RELU": relu, "TRANSPOSED": transposed, "STAGES": STAGES[columns]}
    launch_blocks(name, kernel, programs, (*descs, *lists, *widths), **options)
    return y


def tabled(given: Groups) -> Groups:
    """The groups with their table, which the device makes."""
    table = given.first.new_empty(3, given.most)
    launch(
        "table", table_kernel, (given.most,), tiles=given.tiles, first=given.first, table=table,
        E=given.experts, most=given.most, TILE=given.tile, GROUPS=padded(given.experts + 1),
    )  # fmt: skip
    return given._replace(table=table)


def columns_of(F: int) -> int:
    """Columns of a tile: as many as pad F least, and more rather than fewer."""
    return min(sorted(STAGES, reverse=True), key=lambda n: triton.cdiv(F, n) * n)


def as_it_lies(w: Tensor) -> tuple[Tensor, bool]:
    """w [E, D, F], or [E, F, D] and True where that is how it lies; a copy if it is neither."""
    transposed = w.stride(2) != 1 and w.stride(1) == 1
    return aligned(w.mT if transposed else w), transposed
