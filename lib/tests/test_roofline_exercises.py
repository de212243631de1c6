"""The roofline exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

from ast import literal_eval

from graded import CHIP, TORCH, Exercises
from pytest import approx, raises

from weft.grade import WrongAnswer
from weft.plan import roofline
from weft.plan.hardware import CHIPS
from weft.plan.roofline.levels import tiled_matmul


class TestRoofline(Exercises):
    stem = "roofline"
    functions = ("walk", "stalls", "tiling", "entropy", "swiglu_backward")
    tiers = ("page", "chip")
    secrets = ("move_to_end", "b_slope")

    def runs(self, row):
        """Whether what a test needs is installed here."""
        name = row.name.removeprefix("test_")
        return CHIP if name.startswith("swiglu") else TORCH or not name.startswith("entropy")

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible = self.load("answers"), self.load("test_roofline")
        told, case = self.told("walk"), {"rows": 4, "columns": 4, "steps": 1, "a": 10, "b": 10}
        assert f"walk({', '.join(f'{name}={size}' for name, size in case.items())}, cache=" in told
        for cache, groups, said in (
            (40, [1], "groups of 1 and of 4 fetch {} bytes"),
            (40, [4], "groups of 1 and of 4 fetch {} bytes"),
            (40, [2], "groups of 2 fetch {}"),
            (60, [1], "those of 1 and of 4 fetch {}"),
            (60, [4], "those of 1 and of 4 fetch {}"),
        ):
            _, fetched = answers.walk(**case, wave=1, cache=cache, groups=groups)
            assert said.format(fetched) in told
        for cache in (40, 60):
            best = answers.walk(**case, wave=1, cache=cache, groups=[1, 2, 4])
            assert f"it is {best}" in told and f"cache={cache}" in told

        told = self.told("stalls")
        words = told[told.index("start=2, kernels ") + len("start=2, kernels ") :]
        kernels = literal_eval(f"[{words[: words.index(' take')]}]")
        got = answers.stalls(kernels, 4, 100, 1, 1, 2)
        shown = "{" + ", ".join(f'"{wall}": {seconds:g}' for wall, seconds in got.items()) + "}"
        assert f"take {sum(got.values()):g} seconds: {shown}" in told
        read = answers.stalls([(*kernels[0][:2], True), *kernels[1:]], 4, 100, 1, 1, 2)
        full = answers.stalls(kernels, 4, 1, 1, 1, 2)
        said = f"take {sum(read.values()):g}, with {read['overhead']:g} of overhead; "
        said += f"with depth=1 instead, {sum(full.values()):g}, with {full['overhead']:g}"
        assert said in told

        told, chip = self.told("tiling"), visible.real("h100")
        words = told[told.index('{"sms"') :]
        assert literal_eval(words[: words.index("}") + 1]) == chip
        n, k = visible.WEIGHTS["down"]
        *choice, seconds = answers.tiling(256, n, k, chip)
        mantissa, exponent = f"{seconds:.9e}".split("e")
        shown = f"({', '.join(map(str, choice))}, {mantissa[:5]}…e{exponent})"
        assert f"m=256, n={n}, k={k}, take {shown}" in told

    def test_a_walk_without_a_cache_fetches_what_tiles_load(self):
        """With room for one slice of each, as the page counts what comes out of the L2."""
        fetched = self.load("probe").fetched(4, 3, 5, 2 * 128 * 64, 2 * 256 * 64, 0, 7, 2)
        m, n, k = 4 * 128, 3 * 256, 5 * 64
        assert fetched == tiled_matmul(m, n, k, 2, 128, 256).bytes - 2 * m * n

    def test_a_walk_with_a_large_cache_fetches_operands_once(self):
        fetched = self.load("probe").fetched(4, 3, 5, 2 * 128 * 64, 2 * 256 * 64, 10**9, 7, 3)
        m, n, k = 4 * 128, 3 * 256, 5 * 64
        assert fetched == roofline.matmul(m, n, k, 2).bytes - 2 * m * n

    def test_a_tiling_is_never_sooner_than_the_roof(self):
        probe, visible = self.load("probe"), self.load("test_roofline")
        for n, k in visible.WEIGHTS.values():
            for m in visible.TOKENS:
                least = roofline.seconds(roofline.matmul(m, n, k, 2), CHIPS["h100"], "bf16")
                took = probe.tilings(m, n, k, visible.real("h100")).values()
                assert least <= min(took) * (1 + 1e-9)

    def test_what_is_asked_for_is_not_decided_by_one_thing(self):
        """Neither one group, nor one tile, nor one split is best throughout."""
        answers, visible = self.load("answers"), self.load("test_roofline")
        names = "rows", "columns", "steps", "a", "b", "cache", "wave", "groups"
        cases = [dict(zip(names, visible.walked(*one), strict=True)) for one in visible.WALKED]
        best = [(case["groups"], answers.walk(**case)[0]) for case in cases]
        assert len({g for _, g in best}) > 1
        assert any(g not in (groups[0], groups[-1]) for groups, g in best)
        found = {
            answers.tiling(m, n, k, visible.real(name))[:3]
            for m in visible.TOKENS
            for n, k in visible.WEIGHTS.values()
            for name in ("a100-80", "h100")
        }
        assert len({one[:2] for one in found}) > 4 and {1, 2, 4} <= {one[2] for one in found}

    def test_the_slopes_are_those_of_autograd(self):
        if not TORCH:
            return
        import torch

        probe = self.load("probe")
        for gate in (-900.0, -3.0, -1.278, 0.0, 0.5, 900.0):
            x = torch.tensor(gate, dtype=torch.float64, requires_grad=True)
            y = torch.nn.functional.silu(x)
            y.backward()
            assert probe.silu_and_slope(gate) == approx((y.item(), x.grad.item()), abs=1e-12)

    def test_the_entropy_is_that_of_the_definition(self):
        probe = self.load("probe")
        assert probe.surprise([5.0] * 8) == approx(2.0794415416798357)  # log 8
        assert probe.surprise([0.0, float("-inf")]) == 0

    def test_the_entropys_range_and_what_it_may_be_off_are_told(self):
        probe, visible, told = self.load("probe"), self.load("test_roofline"), self.told("entropy")
        cases = (*visible.FITTING, *visible.LONGER, *visible.MASKED)
        drawn = [x for case in cases for row in visible.numbers(*case) for x in row]
        assert "between -2,000 and 2,000" in told
        assert 1500 < max(abs(x) for x in drawn if x != float("-inf")) < 2000
        assert "off by 2e-5 + h / 10,000" in told
        right = probe.surprise([1.0, 3.0, 2.0])
        within = 2e-5 + right / 10_000
        probe.check_entropy("", [[1.0, 3.0, 2.0]], {"out": [[right + 0.99 * within]]})
        with raises(WrongAnswer):
            probe.check_entropy("", [[1.0, 3.0, 2.0]], {"out": [[right + 1.01 * within]]})

    def test_the_numbers_that_may_be_taken_out_of_tiles_are_told(self):
        if not TORCH:
            return
        from weft.meter import sram

        told = self.told("entropy")
        assert sram.OF_EACH == 4 and "four for each tile that is loaded" in told
        assert f"numbers half as many as it has, and {sram.FREE} besides" in told

    def test_a_tiling_that_is_none_is_told_why(self):
        probe, chip = self.load("probe"), self.load("test_roofline").TOY
        for choice, k, why in (
            ((24, 16, 1), 64, "the sides are of"),
            ((16, 16, 3), 640, "the split is of"),
            ((16, 16, 4), 192, "at most the number of slices, 3"),
            ((256, 256, 1), 64, "262,144 bytes of registers"),
            ((16, 128, 1), 64, "take 73,728 bytes, shared has 65,536"),
        ):
            with raises(WrongAnswer, match=why):
                probe.check_tiling(16, 16, k, chip, (*choice, 1.0))

    def test_the_readme_has_the_points_and_the_sizes_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        visible = self.load("test_roofline")
        n = max(n for _, n in visible.LONGER)
        assert f"{visible.CAPACITY:,} bytes, room for {visible.CAPACITY // 4:,} numbers" in readme
        assert f"row of {n:,} numbers has {4 * n:,} bytes" in readme
        rows, F, _ = visible.WIDE[-1]
        h, dy = 2 * rows * F, rows * F
        assert f"{rows} rows with F = {F} in float16, h has {h} elements and dy has {dy}" in readme
        assert f"2 × ({h} + {dy}) = {2 * (h + dy)} bytes, and store {2 * (h + dy)}" in readme

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def walk(rows, columns, steps, a, b, cache, wave, groups):\n"
            "    from weft.plan.roofline import matmul\n"
            "    return groups[0], matmul(rows, columns, steps, 2).bytes\n"
            "def tiling(m, n, k, chip):\n"
            "    from weft.plan.roofline.levels import tiled_matmul\n"
            "    return 16, 16, 1, tiled_matmul(m, n, k, 2, 16, 16).bytes / chip['l2']\n"
        )
        self.closed(tmp_path, cheat, ("test_walk_single", "test_tiling_time"), only="walk,tiling")
