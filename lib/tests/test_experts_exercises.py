"""The exercises of experts both ways: solutions get everything, stubs nothing, and each wrong
answer of the zoo loses exactly what it must."""

from graded import Exercises
from pytest import raises

from weft.plan import experts


class TestExperts(Exercises):
    stem = "experts"
    functions = ("drops", "grid", "balance", "merged", "fused")
    tiers = ("page", "processes", "chip")
    secrets = ("def needed(groups)", "b_tiles")
