"""Experts over ranks: tokens travel to those that have been chosen, and what they made returns."""

from weft.run.experts.gradients import gradient_norm, reduce_gradients
from weft.run.experts.layer import ExpertParallel
from weft.run.experts.model import parallelize, steer
from weft.run.experts.whole import divided, load, load_optimizer, whole, whole_optimizer

__all__ = [
    "ExpertParallel",
    "divided",
    "gradient_norm",
    "load",
    "load_optimizer",
    "parallelize",
    "reduce_gradients",
    "steer",
    "whole",
    "whole_optimizer",
]
