"""The bench of ZeRO's bytes, small: three columns that agree, for the reasons that they should."""

import pytest
import torch._dynamo  # noqa: F401  (launch then has it loaded once, and not each rank)

from weft.bench.jobs import BenchRun
from weft.bench.zero.bytes import BYTES, LinearSizes


@pytest.fixture(scope="module")
def record():
    return BYTES.record(BenchRun(), sizes=LinearSizes(width=61, layers=3, ranks=2, bucket=4000))


@pytest.mark.parametrize("stage", range(4))
def test_what_is_measured_is_what_was_planned(record, stage):
    formula, plan, ours = (record.result(f"stage {stage}, sent", who).value for who in WHO)
    assert ours == plan == pytest.approx(formula, rel=1e-3)
    formula, plan, ours = (record.result(f"stage {stage}, kept", who).value for who in WHO)
    assert plan == pytest.approx(formula, rel=1e-3)
    assert plan <= ours < 1.005 * plan  # and Adam's counters


def test_stages_send_as_much_but_for_the_last_and_keep_less_each(record):
    sends = [record.result(f"stage {stage}, sent", "formula").value for stage in range(4)]
    assert sends[0] == sends[1] == sends[2] == sends[3] / 1.5
    keeps = [record.result(f"stage {stage}, kept", "weft").value for stage in range(4)]
    assert keeps == sorted(keeps, reverse=True) and len(set(keeps)) == 4


WHO = ("formula", "plan", "weft")
