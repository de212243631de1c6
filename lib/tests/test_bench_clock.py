"""The benchmarks' clocks: who comes when, how often, and from when until when time is measured."""

import sys
import time
from statistics import median

import cloudpickle
import pytest
import torch

from weft.bench.clock import AllRanks, Clock, OneDevice, graph
from weft.run.world import launch

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file


class Told(Clock):
    """A clock by which a call takes what it returns, and that remembers who was called."""

    def __init__(self, *rounds, least=0.0):
        super().__init__(*rounds, least)
        self.begun = []

    def begin(self, call, times):
        who, taken = call()
        self.begun.append((who, times))
        return lambda: taken


def test_samples_take_turns_and_every_second_round_runs_backwards():
    clock, told = Told(1, 3), []
    calls = {name: lambda name=name: (name, ord(name)) for name in "abc"}
    samples = clock.samples(calls, lambda *round: told.append(round))
    assert [who for who, _ in clock.begun] == list("cbaabccbaabc")
    assert {times for _, times in clock.begun} == {1}
    assert samples == {name: [ord(name)] * 3 for name in "abc"}
    assert told == [(i, 4) for i in range(4)]


def test_a_sample_lasts_long_enough():
    clock = Told(0, 1, least=1.0)
    clock.samples({"slow": lambda: ("slow", 3.0), "fast": lambda: ("fast", 0.3)})
    assert clock.begun[-2:] == [("fast", 4), ("slow", 1)]  # after two to know how often


def test_what_a_processor_takes_is_the_mean_of_the_calls():
    calls = []

    def call():
        calls.append(1)
        time.sleep(0.02)

    clock = OneDevice("cpu", 0, 1, least=0.05)
    (taken,) = clock.samples({"call": call})["call"]
    assert 0.02 <= taken < 0.2 and 3 <= len(calls) <= 5


def test_caches_are_cold_only_where_that_is_asked_for():
    assert OneDevice("cpu", 0, 1)._waste.nbytes == 0
    cold = OneDevice("cpu", 0, 1, cold=True)
    cold._waste = torch.ones(8, dtype=torch.uint8)
    cold.samples({"call": lambda: None})
    assert cold._waste.sum() == 0


def test_a_gpu_must_be_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="this needs a GPU: torch sees no CUDA device"):
        OneDevice("cuda", 1, 1)


def test_all_ranks_are_timed_from_the_first_start_to_the_last_end():
    """Rank 1 starts late: what each takes for itself is shorter than what both take."""

    def work(world):
        import torch.distributed as dist

        meet, late = dist.barrier, 0.3 * world.rank

        def barrier(group):
            meet(group=group)
            time.sleep(late)

        dist.barrier = barrier
        clock = AllRanks(world, 0, 2)
        return clock.samples({"sleep": lambda: time.sleep(0.2)})["sleep"]

    first, second = launch(work, 2)
    assert first == second and len(first) == 2
    apart = 0.1  # more than the two leave the barrier apart; each for itself takes 0.2
    assert min(first) >= 0.5 - apart and median(first) < 2


def test_a_graph_of_a_processor_is_its_calls_in_a_row():
    made = []
    graph([lambda: made.append(1), lambda: made.append(2)], "cpu")()
    assert made == [1, 2]


@pytest.mark.gpu
@pytest.mark.parametrize(("least", "cold"), [(0.0, True), (0.0, False), (0.01, False)])
def test_a_device_clock_times_what_the_device_does(least, cold):
    clock = OneDevice("cuda", 1, 5, least, cold)
    x, y = (torch.zeros(n, device="cuda") for n in (2**28, 2**20))
    times = clock.samples({"much": lambda: x.add_(1), "little": lambda: y.add_(1)})
    assert len(times["much"]) == len(times["little"]) == 5
    assert median(times["much"]) > 10 * median(times["little"]) > 0
