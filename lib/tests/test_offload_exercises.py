"""The offload exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

from ast import literal_eval

import pytest
from graded import Exercises


class TestOffload(Exercises):
    stem = "offload"
    functions = ("pinned", "leave", "design", "stream_adam", "tiled_backward", "two_way")
    tiers = ("page", "processes", "chip")
    secrets = ("addcdiv_", "addmm_", "came[turn]", "frees.sort")

    def runs(self, row):
        """The device is plain Python: nothing has to be installed for it."""
        return row.tier == "chip" or super().runs(row)

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible = self.load("answers"), self.load("test_offload")
        told = self.told("pinned")
        for align in (1, 8):
            found = answers.pinned([270, 500, 250], align, 3)
            assert str(found) in told and f"pinned([270, 500, 250], {align}, 3)" in told
        told, layers = self.told("leave"), [(2, 4, 3, 5)] * 4
        first, second = (answers.leave(layers, room) for room in (10, 20))
        assert f"leave([(2, 4, 3, 5)] * 4, 10) is {first}, and" in told
        assert f"with room for 20 {second}." in told
        node, model, batch = visible.real_case(*visible.REAL[0])
        *choice, seconds = answers.design(node, model, batch)
        told = self.told("design")
        listed = str(tuple(choice)).replace("'", '"')[:-1]
        assert f"take {listed}, {int(seconds * 1e5) / 1e5}…)" in told
        assert f"with a batch of {batch} on" in told
        for first, values in (('{"gpus": ', node), ('{"layers": ', model)):
            words = told[told.index(first) :]
            given = literal_eval(words[: words.index("}") + 1])
            assert given == {name: pytest.approx(one) for name, one in values.items()}

    def test_designs_differ(self):
        answers, visible = self.load("answers"), self.load("test_offload")
        found = [answers.design(*visible.real_case(*case)) for case in visible.REAL]
        chosen = [one for one in found if one]
        assert len(chosen) == len(found) - 1 and {one[3] for one in chosen} == {True, False}
        assert {one[0] for one in chosen} == {"shard", "host"}
        assert {one[2] for one in chosen} == {"host", "disk"}
        assert {one[1] for one in chosen} - {0, 8}

    def test_the_readme_has_the_points_and_limits(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        visible, probe = self.load("test_offload"), self.load("probe")
        times = visible.BUSY[0]
        least = probe.floor(times, visible.LAYERS)
        assert f"{visible.LAYERS} layers with {times[0]}, {times[1]}, {times[2]}" in readme
        assert f"{least} seconds, and {visible.TIMES * least:g} are allowed" in readme

        assert f"One after the other would be {visible.LAYERS * sum(times)}." in readme
        piece = visible.CUTS[3]
        most = 8 * 8 * piece[0], 2 * 8 * piece[0]
        assert f"three pieces of {piece[0]} numbers" in readme and len(piece) == 3
        assert f"are {most[0]:,} bytes, two more tensors {most[1]:,}: {sum(most):,}" in readme
        tokens, inputs, outputs, tiles = visible.TILED[-1]
        rows = outputs // tiles
        dx, weights = 8 * tokens * inputs, 8 * rows * inputs
        assert f"{tokens} tokens, {inputs} inputs and {outputs} outputs in {tiles} tiles" in readme
        assert f"x has {dx} bytes, a tile's weights {weights}" in readme
        assert f"gradients {weights} + {8 * rows}: {dx + 2 * weights + 8 * rows:,}," in readme

    def test_a_device_sees_what_no_timing_shows(self):
        """What is in time by luck is not enforced."""
        probe = self.load("probe")

        class Hasty:
            @staticmethod
            def two_way(device, layers):
                one, two = device.stream(), device.stream()
                pinned, weights, gradient = device.pinned(), device.memory(), device.memory()
                device.fill(pinned, 0)
                device.copy(weights, pinned, one)
                device.matmul(gradient, weights, 0, two)
                device.copy(pinned, gradient, two)
                device.synchronize(device.record(two))
                device.add(pinned, 0)

        wrong = probe.two_way(Hasty, [[1]] * 5)["wrong"]
        assert wrong and "used before what is copied or computed into it is there" in wrong[1]

    def test_a_gpu_is_driven_by_the_same_calls(self):
        pytest.importorskip("torch")
        probe, answers = self.load("probe"), self.load("answers")
        called = {name.removesuffix("()") for name in probe.Device.OFFERS}
        assert called == {name for name in vars(probe.Cuda) if not name.startswith("_")}
        for layers in (1, 2, 5):
            assert probe.try_out(answers.two_way, layers, 8)[1] < 1e-4

    def test_the_library_is_closed(self, tmp_path):
        cheat = (
            "def design(node, model, batch):\n"
            "    from weft.plan.offload import placed\n"
            "    return placed(1, 'offload', None)\n"
            "def leave(layers, room):\n"
            "    from weft.run.offload import Store\n"
            "    return Store\n"
        )
        self.closed(tmp_path, cheat, ("test_design_fits", "test_leave"), only="design,leave")

    def test_a_peak_of_memory_is_what_was_there(self):
        pytest.importorskip("torch")
        probe, answers = self.load("probe"), self.load("answers")
        report = probe.adam(answers, [100, 100, 100], steps=1)
        assert report["wrong"] is None and report["late"] is None
        assert 8 * 8 * 100 < report["alive"] <= 8 * 10 * 100

    def test_the_right_numbers_are_those_of_torchs_adam(self):
        torch = pytest.importorskip("torch")
        probe, dice = self.load("probe"), torch.Generator().manual_seed(3)
        weight, *gradients = torch.randn(4, 9, generator=dice, dtype=torch.float64)
        theirs = torch.nn.Parameter(weight.clone())
        peer = torch.optim.Adam([theirs], lr=0.01, betas=(0.75, 0.9375), eps=1e-6, foreach=False)
        ours = [weight.tolist(), [0.0] * 9, [0.0] * 9]
        for step, gradient in enumerate(gradients, 1):
            theirs.grad = gradient.clone()
            peer.step()
            ours = probe.stepped(*ours, gradient.tolist(), step, 0.01, 0.75, 0.9375, 1e-6)
        state = peer.state[theirs]
        for mine, right in zip(
            ours, (theirs.detach(), state["exp_avg"], state["exp_avg_sq"]), strict=True
        ):
            assert mine == pytest.approx(right.tolist(), rel=1e-12)
