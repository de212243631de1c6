"""The scan h_t = a_t h_{t-1} + x_t on a GPU: what it moves, and how much of it is on the way.

Two operations an element and 12 bytes of it in fp32: memory is the wall, if enough loads are on
their way. In one pass a thread walks through all the time of a channel, with `ahead` steps of a
and x loaded before the first is used, so few channels keep few bytes on the way. In chunks of
time, `chunks` threads share a channel, and a and x are read twice.
"""

from weft.plan.arguments import amount, instance, sizes
from weft.plan.gpu import reached
from weft.plan.hardware import Chip
from weft.plan.roofline import Work

AHEAD = 32  # steps of a and x that a thread has on their way
# Seconds from asking for a number to using it, of a memory that is far from busy: what one step of
# fla's scan took on an H800, 7.520576 ms / 16384 (its chunk.py of HGRN). A busy one takes longer.
LATENCY = 0.46e-6


def scan_work(B: int, T: int, D: int, size: int = 4, chunks: int = 1) -> Work:
    """The work of the forward scan: a multiply and an add, a and x in and h out.

    With more than one chunk a and x are read once more, for what each chunk does to a state.

    >>> scan_work(1, 4096, 2560).intensity, scan_work(1, 1, 1, chunks=1).bytes
    (0.16666666666666666, 12)
    """
    B, T, D, size, chunks = sizes(B=B, T=T, D=D, size=size, chunks=chunks)
    passes = 2 if chunks > 1 else 1
    return Work(2 * passes * B * T * D, (2 * passes + 1) * B * T * D * size)


def scan_seconds(
    chip: Chip,
    B: int,
    T: int,
    D: int,
    size: int = 4,
    chunks: int = 1,
    ahead: int = AHEAD,
    latency: float = LATENCY,
) -> float:
    """Seconds of the scan: of all its bytes, or of its loads, whichever is longer.

    Loads come at the rate that those under way allow (Little's law); stores are not waited for.

    >>> from weft.plan.hardware import CHIPS
    >>> few = scan_seconds(CHIPS["h200"], 1, 8192, 512)
    >>> few / scan_seconds(CHIPS["h200"], 1, 8192, 512, chunks=16) > 4
    True
    """
    work = scan_work(B, T, D, size, chunks)
    (ahead,) = sizes(ahead=ahead)
    latency = amount("latency", latency, above=True)
    under_way = B * D * min(chunks, T) * min(ahead, -(-T // chunks)) * 2 * size
    loads = (work.bytes - B * T * D * size) / reached(chip, under_way, latency)
    return max(work.bytes / chip.bandwidth, loads)


def least_channels(
    chip: Chip, size: int = 4, ahead: int = AHEAD, latency: float = LATENCY
) -> float:
    """B D from which one pass is at least as fast as chunks that keep the memory busy.

    Then its T / ahead round trips take as long as the 5 numbers an element that chunks move.

    >>> from weft.plan.hardware import CHIPS
    >>> round(least_channels(CHIPS["h200"]))
    3450
    """
    instance(Chip, chip=chip)
    size, ahead = sizes(size=size, ahead=ahead)
    latency = amount("latency", latency, above=True)
    return chip.bandwidth * latency / (5 * size * ahead)
