"""The retention exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

import pytest
from graded import Exercises

from weft.plan.retention import RETNETS, decay_sum

MODEL = RETNETS["6.7b"]
RETNET = MODEL.heads, MODEL.K, MODEL.V, 4
TRANSFORMER = MODEL.layers, MODEL.layers, 0, 8, 128, 2, 16  # 8 kv heads of 32, all layers full


class TestRetention(Exercises):
    stem = "retention"
    functions = ("crossing", "averaged", "turning", "backward", "step")
    tiers = ("page", "chip")
    styled = ("page", "chip")
    secrets = ("_turned(", "_fades(")

    def test_the_targets_in_the_docstrings_are_computed_ones(self):
        crossing, told = self.load("answers").crossing, self.told("crossing")
        sizes = *TRANSFORMER, *RETNET
        assert f"crossing{sizes} is {crossing(*sizes)}, moved {crossing(*sizes, 1, True)}," in told
        spread = (crossing(*sizes, 16, moved) for moved in (False, True))
        assert "over 16 ranks {} and {}.".format(*spread) in told
        some, none = ((32, full, 1024, *sizes[3:]) for full in (4, 0))
        moved = crossing(*some, 1, True)
        assert f"1024 in 28 of the layers it is {crossing(*some)}, moved {moved}; with" in told
        assert crossing(*none) is crossing(*none, 1, True) is None

    def test_the_length_is_the_plans_where_every_layer_is_full(self):
        crossing = self.load("answers").crossing
        for share, kv in ((1, 32), (1 / 4, 8)):
            even = MODEL.state() / MODEL.cache(share)  # tokens that are as large as the states
            sizes = *TRANSFORMER[:3], kv, *TRANSFORMER[4:], *RETNET
            assert crossing(*sizes) == even + 1
            assert crossing(*sizes, 1, True) == 2 * even  # with the token that the step writes

    def test_the_sums_of_decays_are_the_plans(self):
        torch = pytest.importorskip("torch")
        sums = self.load("answers")._sum_of_decays
        for decay in (0.5, 31 / 32, 1 - 2**-20, 1.0):
            log = torch.tensor(decay, dtype=torch.float64).log()
            for tokens in (0, 1, 7, 5000):
                assert sums(log, tokens).item() == pytest.approx(decay_sum(decay, tokens))

    def test_the_mean_in_the_docstring_is_a_computed_one(self):
        torch = pytest.importorskip("torch")
        one, v = torch.ones(1, 3, 1), torch.tensor([6.0, 2.0, 4.0]).view(1, 3, 1)
        nothing = torch.zeros(1, 1, 1)
        o, mean = self.load("answers").averaged(one, one, v, nothing, nothing.half(), 0)
        outputs = ", ".join(f"{x:g}" for x in o.flatten().tolist())
        told = f"v = 6, 2, 4 o is {outputs}, and the mean {mean.item():g}."
        assert told in self.told("averaged")

    def test_the_readme_has_the_points_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        hidden = sum(row.max for row in solved.tests if row.hidden)
        assert f"{hidden:g} of the points are hidden" in readme

    def test_the_bytes_that_are_told_are_those_of_the_graded_runs(self):
        visible, readme = self.load("test_retention"), (self.solutions() / "README.md").read_text()
        H, (T,), K, V, chunk = visible.GRADED
        assert f"H = {H}, T = {T}, K = V = {K} and chunks of {chunk}" in self.told("turning")
        table, state, each = 8 * H * T * T, 8 * H * K * V, 8 * H * T * V
        most, written = int(1.5 * visible.MIB), 12 * visible.MIB
        # A table is made of distances, their powers and scores, each as large as itself.
        assert each == 8 * H * T * K and 6 * each < most <= 3 * table
        assert T // chunk * state * 4 < written < 2 * T * state  # faded and written
        square = 8 * H * chunk**2
        for nbytes in (each, square, state, table, most, T * state, written):
            assert f"{nbytes:,}" in readme, nbytes
        H, T, K, V, chunk = visible.GRADED_BACK
        assert f"H = {H}, T = {T}, K = V = {K} and chunks of {chunk}" in self.told("backward")
        each, square, table = 8 * H * T * K, 8 * H * chunk**2, 8 * H * T * T
        room = 512 * 1024
        assert 6 * each + 4 * square < room < table
        for nbytes in (each, square, square * T // chunk, table, room):
            assert f"{nbytes:,}" in readme, nbytes

    def test_the_librarys_own_retention_is_closed(self, tmp_path):
        cheat = (
            "def crossing(*sizes, **more):\n"
            "    from weft.plan.retention import RETNETS\n"
            "    return RETNETS['6.7b'].state()\n\n\n"
            "def averaged(q, *rest):\n"
            "    from weft.ref.retention import chunked\n"
            "    return chunked(q, *rest)\n"
        )
        closed = ("test_crossing", "test_averaged")
        self.closed(tmp_path, cheat, closed, only="crossing,averaged")
