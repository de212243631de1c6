"""The exercises of the ring both ways: solutions get everything, stubs nothing, and each wrong
answer of the zoo loses exactly what it must."""

from graded import Exercises
from pytest import raises

from weft.plan import ring


class TestRing(Exercises):
    stem = "ring"
    functions = ("deal", "prefill", "gradients", "arrive")
    tiers = ("page", "processes", "chip")
    secrets = ("def stops(owner)", "order[rank::n]")

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible, probe = (self.load(name) for name in ("answers", "test_ring", "probe"))
        name, model, T, seconds = visible.REAL[0]
        node = visible.real(name)
        a, b, kept, took = answers.prefill(node, model, T, seconds)
        told = self.told("prefill")
        assert (
            f"{T} tokens in {seconds} seconds: that is ({a}, {b}, {kept}, {int(took * 1e5) / 1e5}…)"
            in told
        )
        assert probe.found_grids(node, model, T, took * (1 - 1e-9))[0][1:3] != (a, b)
        shown = (
            '"gpus": 8',
            '"memory": 80e9',
            '"rate": 593.64e12',
            '"inside": 450e9',
            '"outside": 50e9',
        )
        assert all(one in told for one in shown)
        assert list(node.values()) == [float(one.split(": ")[1]) for one in shown]
        told = self.told("deal")
        scores = probe.block_scores(([4, 2, 2], 2, 2))
        assert scores == [3, 7, 3, 3] and "blocks have 3, 7, 3 and 3 scores" in told
        probe.check_even(([4, 2, 2], 2, 2), [[0, 1], [2, 3]])
        assert "[[0, 1], [2, 3]]" in told and "with 10 and 6 scores" in told

    def test_a_grid_sends_what_the_plan_has(self):
        probe, model = self.load("probe"), self.load("test_ring").LLAMA_3
        slow = {"gpus": 8, "memory": 1e12, "rate": 1e30, "inside": 1.0, "outside": 1.0}
        for a, b in ((1, 4), (2, 2), (8, 4)):
            took, *_ = probe.grid(slow, model, 131072, a, b)
            sent = ring.sent_in_grid(131072, a, b, 32, 8, 128)
            assert abs(took / model["layers"] - sum(sent)) < 1

    def test_the_readme_has_the_points_and_the_sizes_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        visible = self.load("test_ring")
        positions, _, H, G, K = visible.GRADED
        c, block = len(positions[0]), len(positions[0]) * G * 2 * K * 8
        assert f"{len(positions)} ranks hold {c} tokens each, folded" in readme and H == 1
        assert f"one head of {K}: a block has {block:,} bytes" in readme
        assert f"{8 * c * c}." in readme
        assert f"room for {visible.BLOCKS} blocks, {visible.BLOCKS * block:,} bytes" in readme

    def test_the_bytes_in_the_readme_are_those_that_are_asked_for(self):
        probe, readme = self.load("probe"), (self.solutions() / "README.md").read_text()
        for window, nbytes in ((3, 384), (None, 576)):
            case = ring.positions(9, 3, "contiguous"), window, 1, 1, 2
            probe.check_bytes(case, [{"sent": nbytes}, {"sent": 0}, {"sent": 0}])
            with raises(probe.WrongAnswer):
                probe.check_bytes(case, [{"sent": nbytes + 1}, {"sent": 0}, {"sent": 0}])
            assert f"{nbytes} bytes" in readme

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def deal(documents, n, block):\n"
            "    from weft.plan.ring import positions\n"
            "    return positions(sum(documents) // block, n, 'zigzag')\n"
            "def prefill(node, model, T, seconds):\n"
            "    from weft.plan.ring import pass_seconds\n"
            "    return pass_seconds(T, 1, None, 1, 1, 1)\n"
        )
        closed = ("test_deal", "test_prefill_memory")
        self.closed(tmp_path, cheat, closed, only="deal,prefill")
