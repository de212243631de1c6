"""Checkpoints of ZeRO: every rank writes what it keeps, and any number of ranks can load it."""

from weft.run.zero.checkpoint.folder import exists, load, save

__all__ = [
    "exists",
    "load",
    "save",
]
