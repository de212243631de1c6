"""Experts measured: a step of the layer over ranks beside its peers, and who is chosen."""

from weft.bench.experts.balance import BALANCE
from weft.bench.experts.peers import STEP

JOBS = (STEP, BALANCE)

__all__ = ["JOBS"]
