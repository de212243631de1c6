"""The precision exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

from ast import literal_eval

from graded import Exercises
from pytest import mark

from weft.plan.precision import (
    E2M1,
    FORMATS,
    Recipe,
    least_update,
)
from weft.plan.precision.scale import delayed


class TestPrecision(Exercises):
    stem = "precision"
    functions = ("delayed", "formats", "linear", "mxfp4", "adamw")
    tiers = ("page", "processes", "chip")
    secrets = ("history[-length:]", "spacing / 512", "0x400000).to", "b_upper")

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible = self.load("answers"), self.load("test_precision")
        told = self.told("delayed")
        steps = [[3.0, -0.25], [500.0, 0.0], [2.0**-9, 1.0]]
        shown = answers.delayed(steps, top=448.0, least=2.0**-9, length=2, margin=1)
        asked = "delayed([[3.0, -0.25], [500.0, 0.0], [2.0**-9, 1.0]], top=448.0, least=2.0**-9,"
        assert f"{asked} length=2, margin=1) is {shown}" in told
        told = self.told("formats")
        name, model, more = visible.REAL[0]
        given = visible.chip(name), visible.shape(model), visible.TUNING | more
        best = answers.formats(*given)
        assert "Llama 3 8B on an H200 at 70 %" in told and (name, model) == ("h200", "llama3-8b")
        for key, values in zip(("memory", "layers", "sequences"), given, strict=True):
            words = told[told.index(f'{{"{key}"') :]
            found = literal_eval(words[: words.index("}") + 1])
            assert found.keys() == values.keys()
            assert all(found[one] == values[one] for one in values), (found, values)
        shown = ", ".join(f'"{k}": "{x}"' if isinstance(x, str) else f'"{k}": {x}'
                          for k, x in best.items() if k != "seconds")  # fmt: skip
        assert f'{{{shown}, "seconds": {int(best["seconds"] * 1e5) / 1e5}…}}' in told

    def test_the_docstrings_count_bytes_as_the_plan_does(self):
        probe, told = self.load("probe"), self.told("formats")
        one = {"layers": 1, "linear": [(1, 1)], "others": 0, "between": 0}
        chip = {"bandwidth": 1.0, "bf16": 1e30}
        for weights, beside in (("nearest", 0), ("stochastic", 0), ("kahan", 2), ("master", 4)):
            for kind in ("bf16", "fp32"):
                run = {"sequences": 1, "length": 0}
                choice = weights, kind, "bf16", "bf16", "all", 1
                master = "fp32" if weights == "master" else None
                plan = Recipe("bf16", "bf16", master, kind)
                more = 0 if master else beside  # Kahan's rest, read and written
                found = probe.costs(chip, one, run, *choice)
                assert found == (plan.kept + more, plan.moved + 2 * more)
            assert f"{2 + beside} bytes" in told
        # Master bits in two parts: what is read is the state, and the gradient.
        recipe = Recipe("bf16", "bf16", "fp32", "fp32")
        assert f"{recipe.state + 2} bytes for each weight" in self.told("adamw")
        assert f"what changes, {recipe.state} bytes" in self.told("adamw")

    def test_a_probe_has_the_formats_of_the_plan(self):
        probe = self.load("probe")
        assert FORMATS["e4m3"].max == probe.TOP
        assert tuple(E2M1.decode(bits) for bits in range(8)) == probe.MAGNITUDES
        for value in (0.25, -0.75, 1.2, 2.5, -3.5, 5.0, 6.0, -0.0):
            assert probe._code_of(value, 1.0) == E2M1.encode(value)
        for weight in (0.02, 1.0, 0.7, 2.0**-6, 3.1):
            for name in ("bf16", "fp32"):
                half = probe.spacing_at(weight, FORMATS[name].fraction) / 2
                assert half == least_update(FORMATS[name], weight)

    @mark.parametrize("amax", [0.3, 1.0, 3.5, 3.6, 500.0])
    def test_a_delayed_scale_is_the_plans_rounded_down(self, amax):
        probe = self.load("probe")
        for margin in (0, 2):
            exact = delayed([amax, 0.1], 448.0, margin)
            ours = probe.one_scale([amax, 0.1], 448.0, margin, 1.0)
            assert ours <= exact < 2 * ours

    def test_the_readme_has_the_points_and_the_numbers_that_are_graded(self, solved):
        probe, readme = self.load("probe"), (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        M, N, K = 8, 12, 4
        assert (M * K, N * K, M * N) == (32, 48, 96)
        assert "x has 32 numbers, w 48 and dy 96" in readme
        assert f"fewest casts are {probe.cast_numbers(M, N, K)}." in readme
        assert f"that it is in takes {2 * (M * K + N * K + M * N)}." in readme
        recipe = Recipe("bf16", "bf16", "fp32", "fp32")
        read, programs = (recipe.state + 2) * 40, -(-40 // 16)
        assert f"in each of {programs} programs, {read + 4 * programs} bytes in all" in readme
        assert f"writes 12 × 40, {recipe.state * 40}." in readme

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def delayed(*arguments):\n"
            "    from weft.plan.precision import delayed\n\n\n"
            "def formats(*arguments):\n"
            "    from weft.plan.precision.state import RECIPES\n\n\n"
            "def linear(*arguments):\n"
            "    from weft.ref.precision import saturated\n"
        )
        closed = ("test_delayed", "test_formats", "test_linear")
        self.closed(tmp_path, cheat, closed, only="delayed,formats,linear")
