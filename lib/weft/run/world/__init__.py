"""The ranks of a run: start a function on n of them, and know who the others are."""

from weft.run.world.grid import World
from weft.run.world.launcher import launch
from weft.run.world.report import RankFailed

__all__ = [
    "RankFailed",
    "World",
    "launch",
]
