"""The exercises of experts both ways: solutions get everything, stubs nothing, and each wrong
answer of the zoo loses exactly what it must."""

from ast import literal_eval

from graded import Exercises
from pytest import raises

from weft.plan import experts


class TestExperts(Exercises):
    stem = "experts"
    functions = ("drops", "grid", "balance", "merged", "fused")
    tiers = ("page", "processes", "chip")
    secrets = ("def needed(groups)", "b_tiles")

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible, probe = (self.load(name) for name in ("answers", "test_experts", "probe"))
        model, tokens, kept, chip, nodes, batch = visible.REAL[0]
        node, model = visible.real(chip), model | {"tokens": tokens, "kept": kept}
        e, p, nbytes, seconds = answers.grid(node, model, nodes, batch)
        told = self.told("grid")
        assert (
            f"with {batch} tokens: that is ({e}, {p}, {nbytes}, {int(seconds * 1e5) / 1e5}…)"
            in told
        )
        assert f"On {nodes} nodes with H200" in told
        for words, values in (
            ("gpus memory rate inside outside", node),
            ("layers width hidden experts k other tokens kept", model),
        ):
            shown = told[told.index(f'{{"{words.split()[0]}": ') :]
            assert literal_eval(shown[: shown.index("}") + 1]) == values
        choices = [[[0, 1], [0, 1], [1, 0]], [[2, 3], [2, 0], [1, 3]]]
        told = self.told("drops")
        for percent, words in ((100, "So nothing is dropped: {}."), (50, "and it is {}.")):
            lost = probe.dropped(choices, 4, percent)
            assert words.format(lost) in told and answers.drops(choices, 4, percent) == lost
        assert f"drops({choices}, E=4, percent=100)" in told

    def test_a_grid_sends_and_keeps_what_the_plan_has(self):
        probe, visible = self.load("probe"), self.load("test_experts")
        model = visible.V3 | {"layers": 1, "other": 0, "tokens": 4096, "kept": 0}
        node = {"gpus": 8, "memory": 1e15, "rate": 1e30, "inside": 1.0, "outside": 1.0}
        for e in (2, 4, 8):
            kept, took = probe.one_grid(node, model, 1, 8 * 4096, e, 1)
            assert abs(took / 2 - experts.sent_merged(4096, 7168, e, 256, k=8)) < 1
            assert kept == experts.expert_states(256 * 3 * 7168 * 2048, e, replicas=8 // e)
        _, across = probe.one_grid(node, model, 8, 64 * 4096, 64, 1)  # to distinct nodes
        assert abs(across / 2 - experts.sent_merged(4096, 7168, 8, 256, k=8)) < 1

    def test_who_is_dropped_without_loans_is_what_the_plan_drops(self):
        probe = self.load("probe")
        choices = [[[i * i % 7 % 4] for i in range(23)]]
        counts = [sum(expert == [i] for expert in choices[0]) for i in range(4)]
        for percent in (50, 100, 125):
            room = experts.capacity(23, 4, percent / 100)
            assert len(probe.dropped(choices, 4, percent)) == experts.dropped(counts, room)

    def test_the_readme_has_the_points_and_the_sizes_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        visible = self.load("test_experts")
        T, _, _, begins = visible.MANY_ONES
        assert f"at most {visible.OPERATIONS} operations" in readme
        assert f"{T} tokens are {len(begins)} documents" in readme
        lengths, e, E, *_, D, F = visible.GRADED
        own = E // e * 2 * D * F * 8
        assert f"{len(lengths)} ranks in one row hold {E // e} experts each" in readme
        assert e == len(lengths) and f"with D = {D} and F = {F}: {own:,} bytes" in readme
        assert f"Six times as much may be alive, {visible.TIMES * own:,}" in readme

    def test_the_bytes_in_the_readme_are_those_that_are_asked_for(self):
        probe, readme = self.load("probe"), (self.solutions() / "README.md").read_text()
        case = (2, 0), 2, 4, 2, 9, 2, 3
        ranks = [{"sent": 96, "summed": 64, "rows": 1}, {"sent": 0, "summed": 64, "rows": 0}]
        probe.check_bytes(case, ranks)
        assert "12 numbers, 96 bytes" in readme
        for more in ({"sent": 97}, {"summed": 65}):
            with raises(probe.WrongAnswer):
                probe.check_bytes(case, [ranks[0] | more, ranks[1]])

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def drops(choices, E, percent):\n"
            "    from weft.plan.experts import dropped\n"
            "    return dropped(choices, E)\n"
            "def grid(node, model, nodes, batch):\n"
            "    from weft.plan.experts import distinct_ranks\n"
            "    return distinct_ranks(8, 2, 2)\n"
            "def balance(scores, expert, kept, begins):\n"
            "    from weft.ref.experts import balance\n"
            "    return balance(scores, expert)\n"
        )
        closed = ("test_drops", "test_grid_memory", "test_balance")
        self.closed(tmp_path, cheat, closed, only="drops,grid,balance")
