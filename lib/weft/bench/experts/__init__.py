"""Experts measured: a step over ranks beside its peers, a wire that is hidden, who is chosen."""

from weft.bench.experts.balance import BALANCE
from weft.bench.experts.link import LINK
from weft.bench.experts.peers import STEP

JOBS = (STEP, LINK, BALANCE)

__all__ = ["JOBS"]
