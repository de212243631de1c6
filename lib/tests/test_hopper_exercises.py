"""The hopper exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

from math import ceil

import pytest
from graded import Exercises

from weft.plan.hopper.schedule import SM, TILES, kernel
from weft.plan.hopper.sm import play


class TestHopper(Exercises):
    stem = "hopper"
    also = ("backward",)
    functions = ("narrowest", "most_keys", "ring", "rows", "hadamard", "fp8_scores")
    tiers = ("page", "processes")
    secrets = ("(turn + 1) % 2",)

    def test_the_targets_in_the_docstrings_are_computed_ones(self):
        answers = self.load("answers")
        halves = answers.narrowest(0.5), answers.narrowest(0.5, 1)
        assert "With the defaults: {} for a half; {} for a half at size 1.".format(
            *halves
        ) in self.told("narrowest")
        keys = answers.most_keys(128, 2, 2), answers.most_keys(256, 2, 2)
        assert "2 warpgroups and 2 stages: {}. K = 256: {}.".format(*keys) in self.told("most_keys")
        assert f"{SM.shared // 1024} KiB" in self.told("most_keys")
        assert f"The {SM.registers} of the multiprocessor" in self.told("most_keys")
        wide = TILES["bf16", 128, False]
        clocks = [ceil(play(kernel(p, wide, [8])).makespan) for p in ("pingpong", "overlapped")]
        assert "{} clocks with `ahead` 0, and in {} with 1.".format(*clocks) in self.told("rows")
        assert f"tiles of {wide.keys} keys, K = {wide.K} and 8 tiles" in self.told("rows")

    def test_a_row_counts_its_operations_and_a_ring_sees_what_is_lost(self):
        """The probe itself: numbers that count, and errors that the zoo does not make."""
        probe = self.load("probe")
        probe.Number.done = 0
        x, y = probe.Number(3.0), probe.Number(4.0)
        made = [x + y, 1 + x, x - y, 1 - x, x * y, 2 * x, x / y, -x, sum([x, y])]
        assert [number.value for number in made] == [7, 4, -1, -2, 12, 6, 0.75, -3, 7]
        assert probe.Number.done == 10
        with pytest.raises(TypeError, match="add them as they are"):
            float(x)
        assert probe.product([1.0, 2.0, 3.0, 5.0]) == pytest.approx([5.5, -1.5, -2.5, 0.5])
        good = [[("empty", 0, 1), ("load", 0, 0)], [("full", 0, 0), ("read", 0, 0), ("free", 0, 0)]]
        probe.BufferRing("good", good, 1, 1, 1).run(0).finished()
        for row, says in (
            ([("read", 0, 0), ("free", 0, 0)], "reads tile 0 in slot 0, which holds"),
            ([("full", 0, 0), ("free", 0, 0), ("read", 0, 0)], "after it has freed it"),
            ([("full", 0, 0), ("free", 0, 0)], "expected consumer 1 to read tiles 0 to 0"),
            ([("full", 1, 0)], "expected a slot from 0 to 0"),
            ([("load", 0, 0)], "a kind of full, read, free"),
        ):
            with pytest.raises(AssertionError, match=says):
                probe.BufferRing("bad", [good[0], row], 1, 1, 1).run(0).finished()
