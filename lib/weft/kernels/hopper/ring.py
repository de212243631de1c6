"""A ring of buffers in shared memory: tiles land in its stages in turn, two barriers guard each.

full[s]: phase r ends when the r-th tile that stage s takes in has landed, all its bytes.
empty[s]: phase r ends when every reader has let go of that tile.

The c-th tile of a ring, counted over the whole kernel, takes stage c % STAGES, in that stage's
round r = c // STAGES. Whoever reads it waits for full's phase r & 1. Whoever loads it waits for
empty's phase (r & 1) ^ 1: the first tile of a stage finds it empty without anybody's arrival.
"""

from typing import NamedTuple

from weft.kernels.gluon import arrive, barriers, expect, gl, jit, tma_load, wait


class Ring(NamedTuple):
    """Stages of shared memory, [STAGES, *box], and the barriers that guard each."""

    buf: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor


class RowRing(NamedTuple):
    """A ring whose tiles come with one number for each row: rows [STAGES, 1, ROWS] in fp32."""

    buf: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    rows: gl.shared_memory_descriptor


@jit
def buffer(desc, COUNT: gl.constexpr):
    """Shared memory for COUNT of the boxes that a descriptor describes."""
    shape: gl.constexpr = [COUNT] + desc.block_type.shape
    return gl.allocate_shared_memory(desc.dtype, shape, desc.layout)


@jit
def ring(desc, STAGES: gl.constexpr, READERS: gl.constexpr):
    """A ring for a descriptor's boxes; so many READERS have to let go of each."""
    return Ring(buffer(desc, STAGES), barriers(STAGES, 1), barriers(STAGES, READERS))


@jit
def row_ring(desc, row_desc, STAGES: gl.constexpr, READERS: gl.constexpr):
    """A ring for a descriptor's boxes and, for each, a box of numbers, one to a row."""
    rows = buffer(row_desc, STAGES)
    return RowRing(buffer(desc, STAGES), barriers(STAGES, 1), barriers(STAGES, READERS), rows)


@jit
def stage_of(ring, count):
    """The stage of a ring's count-th tile. That a count is not negative saves two instructions."""
    STAGES: gl.constexpr = ring.buf.shape[0]
    return (count & 0x7FFFFFFF) % STAGES


@jit
def phase_of(ring, count):
    """The last bit of how often that stage has been filled before: the phase to wait for."""
    STAGES: gl.constexpr = ring.buf.shape[0]
    return (count & 0x7FFFFFFF) // STAGES & 1


# --- the loader's side ----------------------------------------------------------------------------


@jit
def fill(ring, desc, at, count):
    """Start the copy of a ring's count-th tile as soon as its stage is empty."""
    stage = stage_of(ring, count)
    wait(ring.empty.index(stage), phase_of(ring, count) ^ 1)
    expect(ring.full.index(stage), desc.block_type.nbytes)
    tma_load(desc, at, ring.full.index(stage), ring.buf.index(stage))


@jit
def fill_with_rows(ring, desc, at, row_desc, row_at, count):
    """Likewise, and a number for each of the tile's rows: both arrive at one barrier."""
    stage = stage_of(ring, count)
    full = ring.full.index(stage)
    wait(ring.empty.index(stage), phase_of(ring, count) ^ 1)
    expect(full, desc.block_type.nbytes + row_desc.block_type.nbytes)
    tma_load(desc, at, full, ring.buf.index(stage))
    tma_load(row_desc, row_at, full, ring.rows.index(stage))


# --- the readers' side ----------------------------------------------------------------------------


@jit
def wait_full(ring, count, pred=True):
    """Wait until a ring's count-th tile has landed, if there is one."""
    wait(ring.full.index(stage_of(ring, count)), phase_of(ring, count), pred=pred)


@jit
def tile(ring, count):
    """A ring's count-th tile as a matrix, one row to a query or a key."""
    return ring.buf.index(stage_of(ring, count)).reshape([ring.buf.shape[2], ring.buf.shape[4]])


@jit
def ready(ring, count):
    """A ring's count-th tile, once it has landed."""
    wait_full(ring, count)
    return tile(ring, count)


@jit
def rows_of(ring, count, LAYOUT: gl.constexpr):
    """The numbers that came with a ring's count-th tile, one to a column of LAYOUT."""
    rows = ring.rows.index(stage_of(ring, count)).reshape([ring.rows.shape[2]])
    return rows.load(gl.SliceLayout(0, LAYOUT))


@jit
def release(ring, count):
    """Let go of a ring's count-th tile: this warpgroup is done with it."""
    arrive(ring.empty.index(stage_of(ring, count)))


@jit
def wait_released(ring, count):
    """Wait until all readers are done with a ring's count-th tile."""
    wait(ring.empty.index(stage_of(ring, count)), phase_of(ring, count))
