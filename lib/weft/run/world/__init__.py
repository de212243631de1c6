"""The ranks of a run: start a function on n of them, and know who the others are."""

from weft.run.world.launcher import RankFailed, World, launch

__all__ = [
    "RankFailed",
    "World",
    "launch",
]
