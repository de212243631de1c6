"""The benchmark of the delta rule's kernels at a small size: what it compares, not how fast."""

import pytest

from weft.bench.clock import OneDevice
from weft.bench.jobs import BenchRun
from weft.bench.linear import delta
from weft.bench.linear.delta import DELTA
from weft.bench.linear.kernels import FLA, OURS, SHARE, SOFTMAX, KernelSizes
from weft.ref.linear import delta as reference

TINY = KernelSizes((8, 16), tokens=16, hidden=16)


@pytest.mark.parametrize(("rule", "way"), [("gated", "forward"), ("delta", "backward")])
def test_ours_is_timed_beside_flash_linear_attention_and_softmax(rule, way, monkeypatch):
    monkeypatch.setattr(delta, "softmax", lambda q, k, v: (q * k).softmax(-1) * v)
    both = delta.delta_faces(rule) | {FLA: reference.chunked}
    monkeypatch.setattr(delta, "delta_faces", lambda rule: both)
    run = BenchRun(given=OneDevice("cpu", 0, 2))
    title, results = delta.measured(run, TINY, rule, way, width=16)
    assert "1 heads of width 16, 16 tokens" in title
    for length in TINY.lengths:
        found = {r.who: r for r in results if r.name == f"T = {length}"}
        assert list(found) == [OURS, FLA, SOFTMAX, SHARE]
        assert all(min(one.samples) > 0 for one in found.values())


def test_who_is_wrong_is_not_timed():
    given = delta.delta_inputs(TINY, 8, 16, "gated", "cpu")
    assert len(given) == 6 and all(x.requires_grad for x in given[:-1])
    assert (given[1].float().norm(dim=-1) - 1).abs().max() < 0.01
    with pytest.raises(AssertionError, match=r"another is wrong by 0\.1"):
        delta.right("another", lambda *x: 1.1 * reference.chunked(*x), given)


def test_a_record_is_named_by_its_rule_direction_and_width():
    names = [job.name for job in DELTA]
    assert len(names) == len(set(names)) == 6
    assert {"linear-gated-delta-forward-128", "linear-delta-backward-128"} <= set(names)
