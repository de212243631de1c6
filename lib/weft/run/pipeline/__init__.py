"""One executor for every pipeline schedule."""

from weft.run.pipeline.clock import Clock, Cpu, GivenCosts, Wall, durations
from weft.run.pipeline.execute import Pipeline, run

__all__ = [
    "Clock",
    "Cpu",
    "GivenCosts",
    "Pipeline",
    "Wall",
    "durations",
    "run",
]
