"""Experts measured: their MLP on a GPU, a step beside its peers, a hidden wire, who is chosen."""

from weft.bench.experts.balance import BALANCE
from weft.bench.experts.link import LINK
from weft.bench.experts.on_gpu import GROUPED
from weft.bench.experts.peers import STEP

JOBS = (GROUPED, STEP, LINK, BALANCE)

__all__ = ["JOBS"]
