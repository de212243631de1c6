"""Pipelines measured: beside torch's, beside the simulator, the simulator, and the search."""

from weft.bench.pipeline.bubble import BUBBLE
from weft.bench.pipeline.peers import STEPS
from weft.bench.pipeline.search import SEARCH
from weft.bench.pipeline.simulation import SIMULATION

JOBS = (STEPS, BUBBLE, SIMULATION, SEARCH)

__all__ = ["JOBS"]
