"""The record of the schedule search."""

from weft.bench.pipeline import search
from weft.plan.pipeline.published import PROFILES


def test_rates_stand_beside_the_papers_and_above_the_bound():
    row = {(r.name.partition(", ")[2], r.who): r.value for r in search.searched(PROFILES[0])}
    assert row["p whole", "paper"] == PROFILES[0].zb_1p
    assert row["2p kept", "paper"] == PROFILES[0].zb_2p
    assert ("2p whole", "paper") not in row
    for limit in ("p whole", "2p kept", "2p whole"):
        assert row[limit, "search"] >= row[limit, "bound"] - 1e-9
    assert round(row["p whole", "search"], 4) <= PROFILES[0].zb_1p
    assert round(row["2p kept", "search"], 4) <= PROFILES[0].zb_2p < row["2p whole", "search"]
