"""A state that is larger than the memory: it streams through a few buffers, piece by piece.

Where states can live instead is in places, how fast their memory has to be in
rates, and the working memory of one layer in tiles. Their functions can be had
from here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from weft.plan.arguments import amount, few, plain, sizes, whole
from weft.plan.offload.places import MACHINES, STRATEGIES, carried, largest, placed
from weft.plan.offload.rates import share_left, trillion
from weft.plan.offload.tiles import tile_bytes, tiles_for

__all__ = [
    "MACHINES", "STRATEGIES", "Move", "Stream", "carried", "largest", "period",
    "placed", "ramp", "share_left", "step_time", "streamed", "tile_bytes", "tiles_for", "trillion",
]  # fmt: skip

KINDS = ("read", "compute", "write")
Time = float | Sequence[float]  # of one piece: the same for all, or one for each


class Move(NamedTuple):
    """What happens to one piece, from `start` to `end`: it is read, computed on or written."""

    kind: str
    piece: int
    start: float
    end: float


@dataclass(frozen=True)
class Stream:
    """A state on its way through the buffers: all moves, in the order in which they begin.

    `lanes` is 1 where reads and writes share the disk's time and 2 where they run side by side.
    Piece i lies in buffer i modulo `buffers` from the start of its read to the end of its write.
    """

    pieces: int
    buffers: int
    lanes: int
    moves: tuple[Move, ...]

    @cached_property
    def makespan(self) -> float:
        """From time zero to the end of the last write."""
        return max(move.end for move in self.moves)

    @cached_property
    def busy(self) -> dict[str, float]:
        """How long is read, computed and written, in all."""
        return {k: sum(m.end - m.start for m in self.moves if m.kind == k) for k in KINDS}

    @cached_property
    def bound(self) -> float:
        """What the step cannot be shorter than: the compute, or the lane with more to do."""
        read, compute, write = (self.busy[kind] for kind in KINDS)
        return max(compute, read + write if self.lanes == 1 else max(read, write))

    def alive(self, each: int | Sequence[int] = 1) -> int:
        """The most bytes in buffers at once, for pieces of `each` bytes; pieces by default."""
        several = isinstance(each, Sequence) and not isinstance(each, str)
        held = list(each) if several else [each] * self.pieces
        if len(held) != self.pieces:
            raise ValueError(f"each has {len(held)} sizes, must have {self.pieces}, one a piece")
        held = [whole("each", size, least=0) for size in held]
        events = [(m.start, held[m.piece]) for m in self.moves if m.kind == "read"]
        events += [(m.end, -held[m.piece]) for m in self.moves if m.kind == "write"]
        most, now = max(held), 0
        for _, change in sorted(events):  # what ends at a time makes room for what starts then
            now += change
            most = max(most, now)
        return most


def streamed(
    pieces: int,
    read: Time,
    compute: Time,
    write: Time,
    buffers: int = 2,
    lanes: int = 1,
) -> Stream:
    """Read every piece, compute on it, write it back, through `buffers` buffers.

    Reads are asked for as early as there is a buffer: at first one for each, then
    one after each write, which sets a buffer free; the disk serves in that order.
    With two buffers piece i-1 is written and i+1 read while piece i computes.
    Rajbhandari et al. 2021, section 6.3 (the overlap-centric design).

    >>> [streamed(4, 2, 3, 1, buffers).makespan for buffers in (1, 2)]
    [24, 15]
    """
    (pieces, buffers), lanes = sizes(pieces=pieces, buffers=buffers), _lanes(lanes)
    few(pieces + buffers, "moves", pieces=pieces, buffers=buffers)
    times = {"read": read, "compute": compute, "write": write}
    times = {kind: _each(kind, time, pieces) for kind, time in times.items()}
    free = {"read": 0, "compute": 0, "write": 0}  # when each lane is
    ends: dict[tuple[str, int], float] = {}
    moves = []

    def move(kind: str, piece: int, after: tuple[str, int]) -> None:
        lane = "read" if lanes == 1 and kind == "write" else kind
        start = max(free[lane], ends.get(after, 0))
        free[lane] = ends[kind, piece] = start + times[kind][piece]
        moves.append(Move(kind, piece, start, free[lane]))

    for turn in range(pieces + buffers):
        if turn >= buffers:
            move("write", turn - buffers, after=("compute", turn - buffers))
        if turn < pieces:
            move("read", turn, after=("write", turn - buffers))
            move("compute", turn, after=("read", turn))
    moves.sort(key=lambda m: (m.start, m.end, KINDS.index(m.kind), m.piece))
    return Stream(pieces, buffers, lanes, tuple(moves))


def period(
    read: float,
    compute: float,
    write: float,
    buffers: int = 2,
    lanes: int = 1,
) -> float:
    """The time that one piece adds to a long stream, once it has settled.

    Three things bound it: computing, the disk, and the buffers. A piece holds its
    buffer while it is read, computed on and written, so that many buffers let
    through that many pieces in this time.

    >>> [period(2.0, 2.0, 2.0, buffers, lanes=2) for buffers in (1, 2, 3)]
    [6.0, 3.0, 2.0]
    """
    buffers, lanes = whole("buffers", buffers), _lanes(lanes)
    read, compute, write = _alike(read=read, compute=compute, write=write)
    disk = read + write if lanes == 1 else max(read, write)
    return max(compute, disk, (read + compute + write) / buffers)


def step_time(
    pieces: int,
    read: float,
    compute: float,
    write: float,
    buffers: int = 2,
    lanes: int = 1,
) -> float:
    """The makespan of `streamed` in closed form, for pieces that are all alike.

    With one buffer times add up. With two buffers on one lane, and with three on
    two, the stream fills, runs at its period, and drains. (For other numbers of
    buffers only the simulation knows how filling and draining go.)

    >>> step_time(4, 2, 3, 1), step_time(4, 2, 3, 1, buffers=3, lanes=2)
    (15, 15)
    """
    (pieces, buffers), lanes = sizes(pieces=pieces, buffers=buffers), _lanes(lanes)
    read, compute, write = _alike(read=read, compute=compute, write=write)
    if buffers == 1 or pieces == 1:
        return pieces * (read + compute + write)
    if (buffers, lanes) == (2, 1):
        inside = (pieces - 2) * max(compute, read + write)
        return read + max(read, compute) + inside + max(compute, write) + write
    if (buffers, lanes) == (3, 2):
        return read + compute + write + (pieces - 1) * max(read, compute, write)
    allowed = "must be 1 with any, 2 with 1 lane or 3 with 2"
    raise ValueError(f"buffers is {buffers} with lanes = {lanes}, {allowed}")


def ramp(pieces: int, read: float, compute: float, write: float, buffers=2, lanes=1) -> float:
    """What a step takes beyond its bound, max(compute, I/O): filling and draining the buffers.

    It is at most what one piece is read and written for, however many there are, if there
    are as many buffers as `step_time` asks for.

    >>> ramp(4, read=2, compute=3, write=1), ramp(400, read=2, compute=3, write=1)
    (3, 3)
    """
    whole = step_time(pieces, read, compute, write, buffers, lanes)
    disk = read + write if lanes == 1 else max(read, write)
    return whole - pieces * max(compute, disk)


def _lanes(lanes: int) -> int:
    lanes = whole("lanes", lanes)
    if lanes > 2:
        raise ValueError(f"lanes is {lanes}, must be 1 or 2: reads and writes")
    return lanes


def _alike(**times: float) -> list[float]:
    """Times that are the same for all pieces."""
    return [_each(name, [time], 1)[0] for name, time in times.items()]


def _each(name: str, time: Time, pieces: int) -> list[float]:
    """The times of all pieces, at least 0 each."""
    time = plain(time)
    several = isinstance(time, Sequence) and not isinstance(time, str)
    each = list(time) if several else [time] * pieces
    if len(each) != pieces:
        raise ValueError(f"{name} has {len(each)} times, must have {pieces}, one for each piece")
    return [amount(name, value) for value in each]
