"""The scan's benchmark at a small size: what it compares, not how fast that is."""

import pytest
import torch

from weft.bench import griffin as bench
from weft.bench.clock import OneDevice
from weft.bench.griffin import (
    COPY,
    FACES,
    JOBS,
    LOOP,
    MOVED,
    OURS,
    ScanSize,
    ScanSizes,
    loop,
    scanning,
)
from weft.bench.jobs import BenchRun
from weft.kernels import griffin

TINY = ScanSizes((ScanSize(1, 5, 3), ScanSize(2, 4, 2)), copied=64)


@pytest.mark.parametrize("way", MOVED)
def test_rates_are_the_least_bytes_over_time(way, monkeypatch):
    """With a clock by which every call takes a second, a rate is the bytes."""
    monkeypatch.setattr(griffin, "STEPS", 2)
    monkeypatch.setattr(bench, "contest", lambda device: FACES)
    clock = OneDevice("cpu", 0, 1)
    monkeypatch.setattr(clock, "begin", lambda call, times: lambda: call() is None or 1.0)
    title, results = scanning(BenchRun(given=clock), TINY, way)
    assert way in title
    rates = {(r.name, r.who): r.value for r in results}
    for who in FACES:
        assert rates["1 × 5 × 3", who] == MOVED[way] * 15 * 4
    assert rates["2 × 4 × 2", COPY] == 2 * 64
    assert rates["2 × 4 × 2", f"{OURS} / {COPY}"] == MOVED[way] * 16 * 4 / 128


def test_without_a_gpu_a_loop_in_torch_is_timed():
    _, results = scanning(BenchRun(given=OneDevice("cpu", 0, 2)), TINY)
    assert {r.who for r in results} == {LOOP, COPY, f"{LOOP} / {COPY}"}
    a, x = torch.rand(2, 5, 3), torch.rand(2, 5, 3)
    torch.testing.assert_close(loop(a, x), griffin.sequential(a, x))


def test_there_is_a_record_for_each_direction():
    assert [(job.name, job.topic) for job in JOBS] == [
        ("griffin-scan-forward", "griffin"),
        ("griffin-scan-backward", "griffin"),
    ]
