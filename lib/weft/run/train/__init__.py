"""Train the small byte-level decoder: through a pipeline, under ZeRO, or from files."""

from weft.run.train.pipeline import main

__all__ = [
    "main",
]
