"""One executor for every pipeline schedule."""

from weft.run.pipeline.clock import Cpu, GivenCosts, Wall, durations
from weft.run.pipeline.execute import Pipeline, run

__all__ = [
    "Cpu",
    "GivenCosts",
    "Pipeline",
    "Wall",
    "durations",
    "run",
]
