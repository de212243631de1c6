"""Experts measured: their MLP on a GPU, a layer over ranks beside its peers, and who is chosen."""

from weft.bench.experts.balance import BALANCE
from weft.bench.experts.on_gpu import GROUPED
from weft.bench.experts.peers import STEP

JOBS = (GROUPED, STEP, BALANCE)

__all__ = ["JOBS"]
