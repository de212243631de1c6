"""Training under a layout: pipeline, tensor, data, context and expert ranks at once."""

from weft.run.composing.checks import microbatches
from weft.run.composing.trainer import Trainer

__all__ = ["Trainer", "microbatches"]
