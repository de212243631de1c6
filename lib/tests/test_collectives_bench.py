"""The collectives benchmark at a small size: what it measures, not how fast that is."""

from statistics import median

import namespaces
import pytest

from weft.bench import collectives as bench
from weft.bench.collectives import JOBS, OPS, OURS, THEIRS, WireSizes
from weft.bench.jobs import BenchRun


@pytest.fixture(scope="module")
def records():
    namespaces.require()
    return {job.name: job.record(BenchRun(), sizes=WireSizes(2**20, 10**9, 0, 3)) for job in JOBS}


def test_both_were_timed_as_often(records):
    record = records["collectives-link"]
    assert {r.name for r in record.results} == {"message", *OPS}
    for op in OPS:
        ours, theirs = (record.result(op, who).samples for who in (OURS, THEIRS))
        assert len(ours) == len(theirs) == 3 and min(*ours, *theirs) > 0
        ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
        assert record.result(op, f"{OURS} / {THEIRS}").value == ratio
        # No wire carries more than its rate, but the bucket's burst and latency are in it too.
        assert record.result(op, "formula").value > 0


def test_bytes_on_the_wire_are_the_formulas_and_gloos_twice_that(records):
    record = records["collectives-bytes"]
    for op in OPS:
        formula, ours, theirs = (least(record.result(op, who)) for who in ("formula", OURS, THEIRS))
        assert formula < ours < 1.1 * formula  # headers, and two barriers
        assert formula < theirs
    formula, theirs = (least(record.result("reduce_scatter", who)) for who in ("formula", THEIRS))
    assert theirs > 1.95 * formula


def least(result):
    """The smallest sample: on a busy machine TCP sends again what is acknowledged late."""
    return min(result.samples)


def test_without_networks_the_error_says_so(monkeypatch):
    monkeypatch.setattr(bench, "NODES", "echo no networks here >&2; exit 3")
    namespaces.require()
    with pytest.raises(RuntimeError, match="two nodes could not be made or failed: no networks"):
        bench.across(WireSizes(2**17, 10**9, 0, 1))
