"""Several axes at once, measured: a whole step beside the same of torch's own parts."""

from weft.bench.composing.peers import STEP

JOBS = (STEP,)

__all__ = ["JOBS"]
