"""The benchmark of the chunked kernels at a small size: what it compares, not how fast that is."""

import pytest
import torch

from weft.bench.clock import OneDevice
from weft.bench.goals import GOALS
from weft.bench.jobs import BenchRun
from weft.bench.linear import JOBS, kernels
from weft.bench.linear.kernels import FLA, KERNELS, OURS, RULES, SHARE, SOFTMAX, KernelSizes
from weft.ref.linear import gated

TINY = KernelSizes((8, 16), tokens=16, hidden=32)


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    """With the interpreter in place of kernels, and torch's definition of softmax attention."""
    monkeypatch.setattr(kernels, "softmax", lambda q, k, v: (q * k).softmax(-1) * v)


def recorded(name):
    (job,) = (job._replace(on=("cpu",)) for job in KERNELS if job.name == name)
    return job.record(BenchRun(given=OneDevice("cpu", 0, 2)), sizes=TINY, width=16)


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_ours_is_timed_beside_flash_linear_attention_and_softmax(way, monkeypatch):
    ours = kernels.faces("gate")
    assert next(iter(ours)) == OURS
    both = ours | {FLA: lambda q, k, v, g: gated.chunked(q, k, v, g)}
    monkeypatch.setattr(kernels, "faces", lambda rule: both)
    record = recorded(f"linear-gate-{way}-128")
    assert record.topic == "linear" and "2 heads of width 16, 16 tokens" in record.title
    for length in (8, 16):
        who = [r.who for r in record.results if r.name == f"T = {length}"]
        assert who == [OURS, FLA, SOFTMAX, SHARE]
        assert all(min(record.result(f"T = {length}", one).samples) > 0 for one in who)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_its_inputs_and_is_checked(rule):
    given = kernels.inputs(TINY, 8, 16, rule, "cpu")
    assert given[0].shape == (2, 8, 2, 16) and given[0].dtype == torch.bfloat16
    assert len(given) == (5 if rule in ("gate", "channels") else 4)
    assert all(x.requires_grad for x in given[:-1]) and not given[-1].requires_grad
    face = kernels.faces(rule)[OURS]
    kernels.check(OURS, rule, face, given)
    with pytest.raises(AssertionError, match=r"is wrong by 0\.1"):
        kernels.check("another", rule, lambda *x: 1.1 * face(*x), given)


def test_goals_ask_for_records_that_there_are():
    names = {job.name for job in JOBS}
    asked = [goal for goal in GOALS if goal.record.startswith("linear-")]
    assert asked and all(goal.record in names and goal.over == FLA for goal in asked)
    assert {f"T = {length}" for length in kernels.FULL.lengths} >= {goal.size for goal in asked}
