"""The fused layers' benchmark at a small size: who takes part, what counts, and what is checked."""

import sys
from types import ModuleType

import pytest
import torch

from weft.bench.clock import OneDevice
from weft.bench.goals import GOALS
from weft.bench.jobs import BenchRun
from weft.bench.tensor import JOBS, on_gpu
from weft.bench.tensor.on_gpu import (
    BOTH,
    COMPILED,
    COPY,
    FORWARD,
    FUSED,
    LIGER,
    OURS,
    QUACK,
    TORCH,
    WAYS,
    FusedSizes,
    least,
    size,
)

TINY = FusedSizes((24, 16), numbers=96, copied=64)
WIDE = f"{TORCH}, fp32"
LAYERS = dict(zip(WAYS, FUSED, strict=True))


@pytest.mark.parametrize("layer", LAYERS)
def test_rates_are_the_least_bytes_over_time(layer, monkeypatch):
    """With a clock by which every call takes a second, a rate is the bytes."""
    clock = OneDevice("cpu", 0, 1)
    monkeypatch.setattr(clock, "begin", lambda call, times: lambda: call() is None or 1.0)
    job = LAYERS[layer]._replace(on=("cpu",))
    record = job.record(BenchRun(given=clock), sizes=TINY)
    assert record.topic == "tensor"
    everybody = [OURS, TORCH] + [WIDE] * (layer == "cross_entropy") + [COMPILED, COPY]
    each = 2 * 96  # bytes of a matrix in bf16
    wanted = {
        "norm": {FORWARD: 4, "backward": 4}, "swiglu": {FORWARD: 3, "backward": 5},
        "cross_entropy": {FORWARD: 1, BOTH: 3},
    }[layer]  # fmt: skip
    for width in TINY.widths:
        for way in WAYS[layer]:
            name = size(layer, way, width)
            who = [r.who for r in record.results if r.name == name]
            assert who == [*everybody, *(f"{OURS} / {one}" for one in everybody if one != OURS)]
            assert record.result(name, OURS).value == wanted[way] * each
            assert record.result(name, COPY).value == 2 * 64
            assert least(layer, 96 // width, width, way) == wanted[way] * each


def contest(layer, way=BOTH, tokens=6, width=16):
    way = way if way in WAYS[layer] else "backward"
    return dict(on_gpu.accepted(on_gpu.CONTESTS[layer](tokens, width, way, "cpu")))


@pytest.mark.parametrize("layer", LAYERS)
def test_what_is_wrong_is_not_timed_and_a_peer_that_refuses_is_left_out(layer, monkeypatch, capsys):
    name = {"norm": "torchs_norm", "swiglu": "torchs_swiglu", "cross_entropy": "wide_loss"}[layer]
    true = getattr(on_gpu, name)

    def refuse(*_, **__):
        raise NotImplementedError("there is no kernel\nfor this")

    def wrong(x, other, *rest):
        return true(1.3 * x, other, *rest)

    on_gpu.tell.cache_clear()
    if layer != "swiglu":  # there it is what the others are compared with
        monkeypatch.setattr(on_gpu, name, refuse)
        assert OURS in contest(layer) and COMPILED not in contest(layer)
        assert f"{COMPILED} is left out: there is no kernel\n" in capsys.readouterr().err
        monkeypatch.setattr(on_gpu, name, wrong)
        with pytest.raises(AssertionError, match="is wrong by"):
            contest(layer)
    monkeypatch.setattr(on_gpu.kernels, "rms_norm", refuse)
    monkeypatch.setattr(on_gpu.kernels, "swiglu", refuse)
    monkeypatch.setattr(on_gpu.kernels, "vocabulary_part", refuse)
    with pytest.raises(NotImplementedError):
        contest(layer)


class Apply:
    """What stands in for one of Liger's functions."""

    def __init__(self, face):
        self.apply = face


def written_over(scores, targets, weight):
    """The loss, as Liger has it: first of several, with the gradient where the scores were."""
    loss = torch.nn.functional.cross_entropy(scores.float(), targets)
    return loss, None


def peers(monkeypatch):
    """Liger's and Quack's functions, by their names and with their arguments."""

    def norm(x, residual, w, eps, offset, mode, in_place):
        assert (offset, mode, in_place) == (0.0, "gemma", False)
        return on_gpu.torchs_norm(x, w, residual)

    def quacks(x, w, residual, eps, prenorm):
        assert prenorm
        return on_gpu.torchs_norm(x, w, residual)

    modules = {
        "liger_kernel": {}, "liger_kernel.ops": {},
        "liger_kernel.ops.fused_add_rms_norm": {"LigerFusedAddRMSNormFunction": Apply(norm)},
        "liger_kernel.ops.swiglu": {"LigerSiLUMulFunction": Apply(on_gpu.torchs_swiglu)},
        "liger_kernel.ops.cross_entropy": {"LigerCrossEntropyFunction": Apply(written_over)},
        "quack": {"rmsnorm": quacks, "cross_entropy": torch.nn.functional.cross_entropy},
    }  # fmt: skip
    for name, inside in modules.items():
        module = ModuleType(name)
        vars(module).update(inside)
        monkeypatch.setitem(sys.modules, name, module)


def test_liger_and_quack_take_part_where_they_are_installed(monkeypatch):
    peers(monkeypatch)
    assert {LIGER, QUACK} <= contest("norm").keys()
    assert LIGER in contest("swiglu") and {LIGER, QUACK} <= contest("cross_entropy").keys()
    assert LIGER not in contest("cross_entropy", FORWARD)


def test_without_a_gpu_it_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for job in FUSED:
        with pytest.raises(ValueError, match="this needs a GPU: torch sees no CUDA device"):
            job.record(BenchRun())


def test_goals_ask_for_records_that_there_are():
    asked = [goal for goal in GOALS if goal.record in {job.name for job in FUSED}]
    assert set(FUSED) < set(JOBS) and len(asked) == 5
    assert {(goal.share, goal.over) for goal in asked} == {(0.9, COPY)}
