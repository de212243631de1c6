"""Matmuls of all experts on Hopper: two warpgroups multiply, other warps load, in one launch.

The kernel is persistent: one block to a multiprocessor, which takes tile after tile. So the loader
fills the ring for a block's next tile while its last one leaves, and that counts: a tile's products
take 12 to 32 turns of a ring that takes two or three turns to fill. However many waves of tiles
there are, one block a tile would wait for the first copies in each.

A tile has 128 rows of one expert, 64 to a warpgroup. Behind an expert's last row the copies bring
the next expert's rows, which make rows of the product that nobody stores: a whole tile leaves
through the copy engine, a partial one row by row. Rows of no expert come out as 0.

Rings of shared memory, as those of `weft.kernels.hopper`, and who arrives at their barriers:

    barrier      arrivals of a phase                      who waits, before
    x.full[s]    the loader; the bytes of a tile, or      both warpgroups, a product with it
                 the loader, when all its rows are there
    x.empty[s]   both warpgroups, behind that product     the loader, the next tile of the stage
    w.full[s], w.empty[s]                                 likewise, always by TMA

TMA takes boxes; it cannot gather rows before Blackwell. So gathered rows are copied by threads
(cp.async): four warps instead of one, which announce a tile one turn later, when it has landed and
has been fenced. They may not be two turns late: of three stages, one is still being read.
"""

from typing import NamedTuple

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    copy_commit,
    copy_rows,
    copy_wait,
    fence,
    gl,
    jit,
    scores,
    sync,
    tma_store,
    tma_store_wait,
    wait,
    wgmma,
    wgmma_go_on,
    wgmma_wait,
    workers,
)
from weft.kernels.hopper import Ring, buffer, fill, new_ring, phase_of, ready, stage_of

EIGHTHS = ["D8", "F8", "x_row8", "E"]  # sizes that do not change a kernel's code


class GroupedShared(NamedTuple):
    """What the warps of a block share: the rings, and for each warpgroup the tile that leaves."""

    x: Ring
    w: Ring
    y: gl.shared_memory_descriptor


class GroupedWork(NamedTuple):
    """Which tiles there are: the kernel's arguments of these names. A width is 8 D8, or 8 F8."""

    p_tiles: gl.tensor
    p_ends: gl.tensor
    most: gl.tensor
    E: gl.tensor
    D8: gl.tensor
    F8: gl.tensor


class GroupedItem(NamedTuple):
    """A tile: whose it is, its first row, where the expert's rows end, its columns, its turns."""

    i_e: gl.tensor
    begin: gl.tensor
    end: gl.tensor
    column: gl.tensor
    turns: gl.tensor


class GatheredRows(NamedTuple):
    """Which rows of x a tile has, and how far apart they lie: 8 x_row8 numbers."""

    p_x: gl.tensor
    p_gather: gl.tensor
    x_row8: gl.tensor


class GroupedOutput(NamedTuple):
    """Where y goes and by which list, and what is done to it first."""

    desc: gl.tensor
    p_y: gl.tensor
    p_scatter: gl.tensor
    p_gate: gl.tensor


@jit(do_not_specialize=EIGHTHS)
def matmul(
    w_desc, x_desc, y_desc, p_x, p_y, p_gather, p_scatter, p_gate, p_tiles, p_ends,
    most, E, D8, F8, x_row8,
    RELU: gl.constexpr, TRANSPOSED: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """y of each expert's rows: x of them times its matrix.

    Row r is row gather[r] of x and becomes row scatter[r] of y; r where there is no
    such list. RELU cuts off below 0; where there is a gate, y is 0 where that is
    not above 0. TRANSPOSED matrices lie as [E, F, D]. p_tiles has for each tile of
    rows its expert, its first row and the end of the expert's, [3, most]; p_ends [E
    + 1] how many tiles the experts up to each one have, at last all.
    """
    shared = GroupedShared(
        new_ring(x_desc, STAGES, 2), new_ring(w_desc, STAGES, 2), buffer(y_desc, 2)
    )
    out = GroupedOutput(y_desc, p_y, p_scatter, p_gate)
    work = GroupedWork(p_tiles, p_ends, most, E, D8, F8)
    rows = GatheredRows(p_x, p_gather, x_row8)
    if p_gather is None:
        workers(
            [
                (consumer, (out, shared, work, RELU, TRANSPOSED, 0)),
                (consumer, (out, shared, work, RELU, TRANSPOSED, 1)),
                (load_boxes, (x_desc, w_desc, shared, work, TRANSPOSED)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        workers(
            [
                (consumer, (out, shared, work, RELU, TRANSPOSED, 0)),
                (consumer, (out, shared, work, RELU, TRANSPOSED, 1)),
                (gather_rows, (rows, w_desc, shared, work, TRANSPOSED)),
            ],
            [4, 4],
            [216, 72],
        )


# --- which tile -----------------------------------------------------------------------------------


@jit
def items(work, COLUMNS: gl.constexpr):
    """How many tiles this block takes: every n-th, where there are n blocks."""
    tiles = gl.load(work.p_ends + work.E) * gl.cdiv(8 * work.F8, COLUMNS)
    return gl.cdiv(gl.maximum(tiles - gl.program_id(0), 0), gl.num_programs(0))


@jit
def item_of(work, n, COLUMNS: gl.constexpr, DEEP: gl.constexpr):
    """This block's n-th tile. Those of the same rows are neighbours and share x."""
    columns = gl.cdiv(8 * work.F8, COLUMNS)
    i = gl.program_id(0) + n * gl.num_programs(0)
    p_tile = work.p_tiles + i // columns
    i_e = gl.load(p_tile)
    begin = gl.load(p_tile + work.most)
    end = gl.load(p_tile + 2 * work.most)
    turns = gl.cdiv(8 * work.D8, DEEP)
    if i_e == work.E:
        turns = 0
    return GroupedItem(i_e, begin, end, i % columns * COLUMNS, turns)


# --- the loader's side ----------------------------------------------------------------------------


@jit
def load_matrix(w_desc, w, item, start, count, TRANSPOSED: gl.constexpr):
    """A tile of the expert's matrix, from row `start` on of what is summed over."""
    if TRANSPOSED:
        fill(w, w_desc, [item.i_e, item.column, 0, start], count)
    else:
        fill(w, w_desc, [item.i_e, start, 0, item.column], count)


@jit
def load_boxes(x_desc, w_desc, shared, work, TRANSPOSED: gl.constexpr):
    """The loader where rows lie one behind the other: one warp."""
    x, w, y = shared
    DEEP: gl.constexpr = x.buf.shape[4]
    COLUMNS: gl.constexpr = y.shape[4]
    count = 0
    for n in range(items(work, COLUMNS)):
        item = item_of(work, n, COLUMNS, DEEP)
        for k in range(item.turns):
            fill(x, x_desc, [0, item.begin, 0, k * DEEP], count)
            load_matrix(w_desc, w, item, k * DEEP, count, TRANSPOSED)
            count += 1


@jit
def gather_rows(rows, w_desc, shared, work, TRANSPOSED: gl.constexpr):
    """The loader of rows that are looked up: four warps, 16 bytes to a thread."""
    x, w, y = shared
    ROWS: gl.constexpr = x.buf.shape[2]
    DEEP: gl.constexpr = x.buf.shape[4]
    COLUMNS: gl.constexpr = y.shape[4]
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    o_row = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    o_d = gl.arange(0, DEEP, gl.SliceLayout(0, LAYOUT))
    count = 0
    for n in range(items(work, COLUMNS)):
        item = item_of(work, n, COLUMNS, DEEP)
        m_row = item.begin + o_row < item.end
        o_from = gl.load(rows.p_gather + (item.begin + o_row), mask=m_row, other=0)
        o_x = o_from.to(gl.int64)[:, None] * (8 * rows.x_row8) + o_d[None, :]
        for k in range(item.turns):
            load_matrix(w_desc, w, item, k * DEEP, count, TRANSPOSED)
            stage = stage_of(x, count)
            wait(x.empty.index(stage), phase_of(x, count) ^ 1)
            m_x = m_row[:, None] & (o_d < 8 * work.D8 - k * DEEP)[None, :]
            b_x = x.buf.index(stage).reshape([ROWS, DEEP])
            copy_rows(b_x, rows.p_x + (o_x + k * DEEP), mask=m_x)
            copy_commit()
            announce(x, count - 1, 1)
            count += 1
    announce(x, count - 1, 0)


@jit
def announce(x, count, LATER: gl.constexpr):
    """Say that the count-th tile is there, when LATER have been asked for since.

    One thread speaks for all, and so they meet when all have fenced.
    """
    copy_wait(LATER)
    fence()
    sync()
    arrive(x.full.index(stage_of(x, gl.maximum(count, 0))), pred=count >= 0)


# --- the warpgroups' side -------------------------------------------------------------------------


@jit
def consumer(
    out, shared, work, RELU: gl.constexpr, TRANSPOSED: gl.constexpr, W: gl.constexpr
):  # fmt: skip
    """Warpgroup W: its 64 rows of a tile; one product is under way as it waits."""
    x, w, y = shared
    ROWS: gl.constexpr = y.shape[2]
    DEEP: gl.constexpr = x.buf.shape[4]
    COLUMNS: gl.constexpr = y.shape[4]
    count = 0
    for n in range(items(work, COLUMNS)):
        item = item_of(work, n, COLUMNS, DEEP)
        b_y = gl.zeros([ROWS, COLUMNS], gl.float32, scores(4, COLUMNS))
        for k in range(item.turns):
            b_x = ready(x, count).slice(W * ROWS, ROWS)
            b_w = ready(w, count)
            if TRANSPOSED:
                b_w = b_w.permute((1, 0))
            b_y = wgmma_go_on(wgmma(b_x, b_w, b_y, is_async=True))
            let_go(x, w, count - 1, k > 0)
            count += 1
        b_y = wgmma_wait(0, deps=(b_y,))
        let_go(x, w, count - 1, item.turns > 0)
        if RELU:
            b_y = gl.where(b_y < 0, 0.0, b_y)
        write(out, y.index(W), b_y, item, work.F8, W)
    tma_store_wait(0)


@jit
def let_go(x, w, count, pred):
    """This warpgroup is done with the count-th tiles, if there are any."""
    stage = stage_of(x, gl.maximum(count, 0))
    arrive(x.empty.index(stage), pred=pred)
    arrive(w.empty.index(stage), pred=pred)


@jit
def write(out, y_buf, b_y, item, F8, W: gl.constexpr):
    """Through shared memory: 64 rows at once by TMA, or those that there are.

    First comes a wait: the copy engine may still read what the last tile left.
    """
    ROWS: gl.constexpr = b_y.shape[0]
    COLUMNS: gl.constexpr = b_y.shape[1]
    LAYOUT: gl.constexpr = gl.BlockedLayout(
        [1, 8], [32 * 8 // COLUMNS, COLUMNS // 8], [4, 1], [1, 0]
    )
    first = item.begin + W * ROWS
    tma_store_wait(0)
    sync()
    buf = y_buf.reshape([ROWS, COLUMNS])
    buf.store(b_y.to(out.desc.dtype))
    whole = first + ROWS <= item.end
    if out.p_scatter is not None or out.p_gate is not None:
        whole = False
    if whole:
        fence()
        tma_store(out.desc, [0, first, 0, item.column], y_buf)
    else:
        o_row = first + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
        o_f = item.column + gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))
        m_row = o_row < item.end
        m_y = m_row[:, None] & (o_f < 8 * F8)[None, :]
        b_out = buf.load(LAYOUT)
        if out.p_gate is not None:
            o_gate = o_row.to(gl.int64)[:, None] * (8 * F8) + o_f[None, :]
            b_gate = gl.load(out.p_gate + o_gate, mask=m_y, other=0.0)
            b_out = gl.where(b_gate > 0, b_out, 0.0)
        o_to = o_row
        if out.p_scatter is not None:
            o_to = gl.load(out.p_scatter + o_row, mask=m_row, other=0)
        p_y = out.p_y + (o_to.to(gl.int64)[:, None] * (8 * F8) + o_f[None, :])
        gl.store(p_y, b_out.to(out.desc.dtype), mask=m_y)
