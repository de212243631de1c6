"""A step of Adam whose state lies on a disk, over the longer of computing and moving."""

import shutil
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.offload.disk import OURS, a_disk
from weft.bench.record import Measurement
from weft.run.offload import Memory, Store, StreamingAdam

BYTES = 12  # of a weight and its two moments, in fp32


class StepSizes(NamedTuple):
    """A step of `pieces` pieces with a disk of `rate` bytes per second, so many times.

    The device takes so many times its I/O to compute as `shares` say.
    """

    piece: int = 2**19
    pieces: int = 40
    rate: float = 100e6
    shares: tuple[float, ...] = (0.5, 1.0, 2.0)
    steps: int = 3


FULL = StepSizes()


class Timed(StreamingAdam):
    """Beside Adam itself a device that takes some time for each piece, the host idle."""

    pause = 0.0

    def _move(self, state: Tensor, parts: list) -> bool:
        time.sleep(self.pause)
        return super()._move(state, parts)


class OneByOne(Store):
    """Nothing ahead and nothing behind: what overlap is compared with."""

    def prefetch(self, name: str, wait: bool = True) -> None:
        """Not now."""

    def write(self, name: str, tensor: Tensor, own: bool = False) -> None:
        """And wait until it is on the disk."""
        super().write(name, tensor, own)
        while self._written():
            pass


def step(run: BenchRun, sizes: StepSizes = FULL) -> Found:
    """Steps over the longer of computing and moving, streamed and one thing after the other.

    What moving takes is the disk's rate, and what computing takes the device's pauses and Adam
    with the state in memory. One thread does Adam: to wake others after each pause takes longer
    than their share of the work.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with a_disk(2 * BYTES * sizes.piece * sizes.pieces) as folder:
            results = _stepping(run, sizes, folder)
    finally:
        torch.set_num_threads(threads)
    rate = f"{sizes.rate / 1e6:g} MB/s each way"
    title = f"A step of Adam in {sizes.pieces} pieces over the longer of computing and moving"
    return f"{title}, on a disk of {rate}", results


STEP = BenchJob("offload-step", step)


def _stepping(run: BenchRun, sizes: StepSizes, folder: Path) -> list[Measurement]:
    """The same, with as many threads as there are."""
    results, moving = [], BYTES * sizes.piece * sizes.pieces / sizes.rate
    adam = min(_steps(Memory(), 0.0, 4, sizes))
    for share in run.each(sizes.shares, "a step, computing {:g} of moving"):
        pause = share * moving / sizes.pieces
        computing = share * moving + adam
        for kind, who in ((Store, OURS), (OneByOne, "one after the other")):
            if kind is OneByOne and share != 1:
                continue  # where overlap can gain the most
            with kind(folder / "states", 6 * BYTES * sizes.piece, rate=sizes.rate) as store:
                seconds = _steps(store, pause, sizes.steps if who == OURS else 1, sizes)
            shutil.rmtree(folder / "states")
            ratios = [second / max(computing, moving) for second in seconds]
            results.append(Measurement.of(f"computing {share:g} of moving", who, "1", ratios))
    return results


def _steps(store: Store | Memory, pause: float, count: int, sizes: StepSizes) -> list[float]:
    """Seconds of some steps."""
    weight = nn.Parameter(torch.zeros(sizes.piece * sizes.pieces))
    weight.grad = torch.ones_like(weight)
    adam = Timed([weight], store, piece=sizes.piece)
    adam.pause, seconds = pause, []
    for _ in range(count):
        start = time.perf_counter()
        adam.step()
        seconds.append(time.perf_counter() - start)
    return seconds
