"""One executor for every pipeline schedule."""

from weft.run.pipeline.clock import Cpu, Unit, Wall, durations
from weft.run.pipeline.execute import Pipeline, run

__all__ = [
    "Cpu",
    "Pipeline",
    "Unit",
    "Wall",
    "durations",
    "run",
]
