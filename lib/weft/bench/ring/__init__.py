"""A ring measured: a step beside its peers, a wire that it hides, a GPU in the place of n ranks."""

from weft.bench.ring.link import LINK
from weft.bench.ring.on_gpu import BLOCK
from weft.bench.ring.peers import STEP

JOBS = (STEP, LINK, BLOCK)

__all__ = ["JOBS"]
