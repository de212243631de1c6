"""The benchmark of the experts' MLP at a small size: who takes part and is checked."""

import itertools

import pytest
import torch

from weft.bench.clock import OneDevice
from weft.bench.experts import JOBS, on_gpu
from weft.bench.experts.on_gpu import (
    ALONE,
    DENSE,
    GROUPED,
    LIGER,
    LOOP,
    OURS,
    TORCH,
    TRITON,
    WAYS,
    ExpertsShape,
    GroupedSizes,
)
from weft.bench.goals import CEILINGS, GOALS
from weft.bench.jobs import BenchRun
from weft.kernels.hopper import launch

SHAPE = ExpertsShape(3, 16, 24, 2, 20)
BOTH = [way for way in WAYS if way != ALONE]
TINY = GroupedSizes((SHAPE, SHAPE._replace(T=16, skew=1.0)))


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    """With Hopper's kernels interpreted, in the same order of events every time."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(launch, "SEEDS", itertools.count())
    monkeypatch.setattr(on_gpu, "on_hopper", lambda: True)


def test_everybody_is_timed_at_every_shape_forward_and_backward():
    record = GROUPED._replace(on=("cpu",)).record(
        BenchRun(given=OneDevice("cpu", 0, 2)), sizes=TINY
    )
    everybody = [*on_gpu.contest(on_gpu.inputs(SHAPE, "cpu")), DENSE]
    alone = [LOOP, TRITON, OURS, TORCH, DENSE]
    assert record.topic == "experts" and OURS in everybody
    for shape in TINY.shapes:
        for way in WAYS:
            name = f"{way}, {shape}"
            who = [r.who for r in record.results if r.name == name]
            there = alone if way == ALONE else everybody
            shares = [f"{OURS} / {one}" for one in there if one != OURS]
            assert who == [*there, *shares]
            assert all(min(record.result(name, one).samples) > 0 for one in who)


def test_what_is_wrong_is_not_timed_and_a_peer_that_refuses_is_left_out(monkeypatch, capsys):
    given = on_gpu.inputs(SHAPE, "cpu")

    def refuse(*_):
        raise NotImplementedError("there is no kernel\nfor this")

    monkeypatch.setattr(on_gpu, "torchs", refuse)
    calls = on_gpu.mlps(given, "forward")
    assert TORCH not in calls and {OURS, TRITON} < calls.keys()
    assert capsys.readouterr().err == f"{TORCH} is left out: there is no kernel\n"
    monkeypatch.setattr(on_gpu, "torchs", lambda x, *_: 1.1 * x)
    with pytest.raises(AssertionError, match="torch, grouped_mm is wrong by"):
        on_gpu.mlps(given, "forward")
    monkeypatch.setattr(on_gpu.hopper, "mlp", refuse)
    with pytest.raises(NotImplementedError):
        on_gpu.mlps(given, "forward")


def liger(x, gate_up, down, expert, weight):
    """SwiGLU's MLP as Liger has it: the gate's rows before the others', matrices transposed."""
    assert expert.dtype == torch.int32
    gate, up = torch.einsum("td,efd->tef", x, gate_up).chunk(2, -1)
    made = torch.einsum("tef,edf->ted", torch.nn.functional.silu(gate) * up, down)
    made = made.gather(1, expert.long().unsqueeze(-1).expand(-1, -1, x.shape[1]))
    return (made * weight.unsqueeze(-1)).sum(1).to(x.dtype)


@pytest.mark.parametrize("right", [True, False])
def test_ligers_mlp_takes_part_where_it_is_installed(right, monkeypatch):
    class Function:
        @staticmethod
        def apply(*given):
            return liger(*given) if right else liger(*given) * 1.2

    module = type(on_gpu)("liger_kernel.ops.fused_moe")
    module.LigerFusedMoEFunction = Function
    for name in ("liger_kernel", "liger_kernel.ops"):
        monkeypatch.setitem(on_gpu.sys.modules, name, type(on_gpu)(name))
    monkeypatch.setitem(on_gpu.sys.modules, module.__name__, module)
    given = on_gpu.inputs(SHAPE, "cpu")
    for way in BOTH:
        if right:
            assert LIGER in on_gpu.mlps(given, way)
        else:
            with pytest.raises(AssertionError, match="Liger, SwiGLU is wrong by"):
                on_gpu.mlps(given, way)


def test_a_dense_product_has_as_many_flop():
    from torch.utils.flop_counter import FlopCounterMode

    given = on_gpu.inputs(SHAPE, "cpu")
    for way in BOTH:
        with FlopCounterMode(display=False) as counter:
            on_gpu.dense(given, way)()
        assert counter.get_total_flops() == WAYS[way] * SHAPE.flops


def test_without_a_gpu_it_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="this needs a GPU: torch sees no CUDA device"):
        GROUPED.record(BenchRun())


def test_goals_ask_for_a_record_that_there_is():
    asked = [goal for goal in GOALS if goal.record == GROUPED.name]
    assert GROUPED in JOBS and len(asked) == 3 and (DENSE,) == CEILINGS
    assert {goal.over for goal in asked} >= {DENSE}
