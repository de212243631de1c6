"""Seconds, by one clock: those that one device takes, and those that all ranks take together.

Whoever is compared takes turns, round by round, and every second round runs backwards, so that
nobody always comes after the same one. Samples are kept in the order of the rounds: two of the
same round were taken one after the other, and may be divided.

`OneDevice` measures from the beginning of a sample's first call to the end of its last: on a
processor by `time.perf_counter`, on a GPU by events in the GPU's own queue. `AllRanks` measures
from when the first rank starts until the last is done.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import TypeVar

import torch
import torch.distributed as dist

from weft.run.world import World

Call = Callable[[], object]
Who = TypeVar("Who", bound=Hashable)
WASTE = 2**28  # bytes, more than any cache holds
TIMES = 8  # overwriting it as often takes an H200 half a millisecond


def in_turns(everybody: Iterable[Who], rounds: int) -> Iterator[list[Who]]:
    """Who comes after whom, in each round.

    >>> ["".join(order) for order in in_turns("abc", 3)]
    ['cba', 'abc', 'cba']
    """
    forward = list(everybody)
    for i in range(rounds):
        yield forward if i % 2 else forward[::-1]


class Clock:
    """Samples of everybody in turns, after some rounds that do not count.

    A sample is the mean of as many calls in a row as take `least` seconds, or of one call.
    """

    def __init__(self, warmup: int, repeats: int, least: float = 0.0) -> None:
        self.warmup, self.repeats, self.least = warmup, repeats, least

    def begin(self, call: Call, times: int) -> Callable[[], float]:
        """Start a sample of so many calls; what is returned waits for the end: seconds of one."""
        raise NotImplementedError

    def seconds(self, call: Call) -> float:
        """Seconds of one call."""
        return self.begin(call, 1)()

    def samples(
        self, calls: Mapping[Who, Call], before: Callable[[int, int], object] | None = None
    ) -> dict[Who, list[float]]:
        """Seconds of a call of everybody, by round; before(i, rounds) is called ahead of each."""
        often = {who: self._often(call) for who, call in calls.items()}
        times: dict[Who, list[float]] = {who: [] for who in calls}
        rounds = self.warmup + self.repeats
        for i, order in enumerate(in_turns(calls, rounds)):
            if before:
                before(i, rounds)
            begun = {who: self.begin(calls[who], often[who]) for who in order}
            for who, end in begun.items():
                times[who].append(end())
        return {who: taken[self.warmup :] for who, taken in times.items()}

    def _often(self, call: Call) -> int:
        """How many calls take `least` seconds. The first one compiles and allocates."""
        if not self.least:
            return 1
        self.seconds(call)
        return max(1, ceil(self.least / max(1e-7, self.seconds(call))))


class OneDevice(Clock):
    """What one device takes, "cpu" or "cuda"; ValueError where there is no such GPU.

    With `cold` an array larger than the cache is overwritten before each sample, on a GPU so
    often that the processor has queued the calls before the GPU gets to them. Without it a GPU
    has nothing to do when a sample begins, and waiting for launches counts.
    """

    def __init__(
        self, device: str, warmup: int, repeats: int, least: float = 0.0, cold: bool = False
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise ValueError("this needs a GPU: torch sees no CUDA device")
        super().__init__(warmup, repeats, least)
        self.device, self.cold = device, cold
        self._waste = torch.empty(WASTE if cold else 0, dtype=torch.uint8, device=device)

    def begin(self, call: Call, times: int) -> Callable[[], float]:
        """A GPU's sample is only queued: its events are read when all of a round are."""
        if self.device == "cpu":
            self._waste.zero_()
            start = time.perf_counter()
            for _ in range(times):
                call()
            taken = (time.perf_counter() - start) / times
            return lambda: taken
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if not self.cold:
            torch.cuda.synchronize()
        for _ in range(TIMES if self.cold else 0):
            self._waste.zero_()
        first.record()
        for _ in range(times):
            call()
        last.record()

        def end() -> float:
            last.synchronize()
            return first.elapsed_time(last) / 1000 / times

        return end


class AllRanks(Clock):
    """What all ranks take for a call that they make together; every rank is told the same.

    It is from when the first rank starts until the last is done, launched work included. So all
    must be ranks of one machine, whose clock they share.
    """

    def __init__(self, world: World, warmup: int, repeats: int) -> None:
        super().__init__(warmup, repeats)
        self.world = world

    def begin(self, call: Call, times: int) -> Callable[[], float]:
        """The ranks meet before and after."""
        self._idle()
        dist.barrier(group=self.world.group())
        start = time.perf_counter()
        for _ in range(times):
            call()
        self._idle()
        ends = torch.tensor([-start, time.perf_counter()], dtype=torch.float64)
        ends = ends.to(self.world.device)
        dist.all_reduce(ends, op=dist.ReduceOp.MAX, group=self.world.group())
        taken = ends.sum().item() / times
        return lambda: taken

    def _idle(self) -> None:
        """Wait until this rank's device has done all that it was given."""
        if self.world.device.type == "cuda":
            torch.cuda.synchronize(self.world.device)


def graph(calls: Sequence[Call], device: str) -> Call:
    """All calls in a row, on a GPU as one graph: the processor's part in launching is left out."""

    def run() -> None:
        for call in calls:
            call()

    if device == "cpu":
        return run
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        run()
    torch.cuda.current_stream().wait_stream(aside)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        run()
    return recorded.replay
