"""The exercises of tensor both ways: solutions get everything, stubs nothing, and each wrong
answer of the zoo loses exactly what it must."""

from ast import literal_eval

from graded import Exercises
from pytest import raises

from weft.plan import tensor, zero
from weft.plan.collectives import BOXES


class TestTensor(Exercises):
    stem = "tensor"
    functions = ("reads", "degree", "finish", "block", "statistics")
    tiers = ("page", "processes", "chip")
    secrets = ("places.setdefault", "b_found")

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible, probe = (self.load(name) for name in ("answers", "test_tensor", "probe"))
        told = self.told("reads")
        for words, ranks in (
            ("reads(H=4, G=2, K=2, t=1, u=2, rank=1): the whole has", (1, 2, 1)),
            ("With t=2, u=1, rank=0 it is", (2, 1, 0)),
        ):
            found = answers.reads(4, 2, 2, *ranks)
            probe.check_reads(4, 2, 2, *ranks, found)
            assert words in told and str(found) in told
        node, model, nodes = visible.real_case(*visible.REAL[0])
        t, kept, nbytes, seconds = answers.degree(node, model, nodes)
        told = self.told("degree")
        shown = f'takes ({t}, "{kept}", {nbytes}, {int(seconds * 1e5) / 1e5}…)'
        assert shown in told and nodes == 2 and "on two nodes with H100" in told
        for first, values in (('{"gpus": ', node), ('{"layers": ', model)):
            words = told[told.index(first) :]
            assert literal_eval(words[: words.index("}") + 1]) == values

    def test_a_degree_sends_half_of_what_two_halves_send(self):
        probe, visible = self.load("probe"), self.load("test_tensor")
        model = visible.PLUS | {"layers": 1, "tokens": 4096, "flying": 1, "state": 0}
        node = {"gpus": 8, "memory": 1e15, "rate": 1e30, "inside": 1.0, "outside": 1.0}
        numbers = 4096 * model["width"] * 2  # in bytes
        for t in (2, 8):
            for how, regather in (("all", False), ("regather", True)):
                _, seconds = probe.one_degree(node, model, t, how)
                ops = [call.op for call in tensor.calls(t, True, regather=regather)]
                assert abs(seconds - len(ops) / 2 * numbers * (t - 1) / t) < 1

    def test_a_degree_across_nodes_has_the_links_of_the_plan(self):
        probe, visible = self.load("probe"), self.load("test_tensor")
        box, model = BOXES["dgx-h100"], visible.PLUS | {"layers": 1, "tokens": 4096}
        node = visible.real("dgx-h100") | {"rate": 1e30}
        _, seconds = probe.one_degree(node, model | {"flying": 1, "state": 0}, 16, "all")
        rate = zero.ring_bandwidth(16, box.outside, box.inside, 8)
        assert abs(seconds * rate / (4 * 4096 * model["width"] * 2 * 15 / 16) - 1) < 1e-9

    def test_the_readme_has_the_points_and_the_sizes_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        visible, probe = self.load("test_tensor"), self.load("probe")
        T, _, sizes = visible.WIDE
        part = T * sizes[0] * 4
        room = int(visible.TIMES * part)
        assert f"{T} tokens of {sizes[0]} columns, {part:,} bytes" in readme
        assert f"{visible.TIMES} times as much may be alive, {room:,}" in readme
        own = {probe.own_bytes(visible.GRADED, rank) for rank in range(len(visible.GRADED[0]))}
        assert f"each of {len(visible.GRADED[0])} ranks" in readme and len(own) == 1
        assert f"have {min(own):,} bytes. Five times as much may be alive" in readme
        assert f"alive, {visible.MATRICES * min(own):,}:" in readme

    def test_the_bytes_in_the_readme_are_those_that_are_asked_for(self):
        probe, readme = self.load("probe"), (self.solutions() / "README.md").read_text()
        case = (2, 2), (1, 1), (2, 2), 3, 2
        probe.check_bytes(case, [{"sent": 300}, {"sent": 324}])
        with raises(probe.WrongAnswer):
            probe.check_bytes(case, [{"sent": 300}, {"sent": 325}])
        assert "For 2 ranks, T = 4, D = 3 and K = 2" in readme and "624 bytes" in readme

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def reads(H, G, K, t, u, rank):\n"
            "    from weft.plan.tensor import shares\n"
            "    return shares(H, u)\n"
            "def degree(node, model, nodes):\n"
            "    from weft.plan.tensor import layer_time\n"
            "    return layer_time(model, 1, 1, 1, 1)\n"
        )
        closed = ("test_reads", "test_degree_memory")
        self.closed(tmp_path, cheat, closed, only="reads,degree")
