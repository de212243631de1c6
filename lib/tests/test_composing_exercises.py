"""The exercises of composing both ways: solutions get everything, stubs nothing, and each wrong
answer of the zoo loses exactly what it must."""

from ast import literal_eval
from shutil import copy

from graded import Exercises
from pytest import approx, raises

from weft.plan.composing import CLUSTERS, Layout, estimate, groups
from weft.plan.pipeline import overhead
from weft.plan.processes import nodes
from weft.plan.shape import SHAPES


class TestComposing(Exercises):
    stem = "composing"
    functions = ("crossed", "undone", "layout", "rhythm", "clipped")
    tiers = ("page", "processes")
    secrets = ("setdefault((digit", "max(own for own")

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible, probe = (
            self.load(name) for name in ("answers", "test_composing", "probe")
        )
        shown = lambda first: literal_eval(told[told.index(first) :].split("}")[0] + "}")  # noqa: E731
        cut = lambda x, digits: int(x * 10**digits) / 10**digits  # noqa: E731
        told = self.told("crossed")
        sizes, sent = shown('{"t": 2'), shown('{"t": 1000')
        for order in ("tcdp", "pcdt"):
            found = answers.crossed(order, sizes, 4, sent)
            probe.check_crossed(order, sizes, 4, sent, found)
            assert f'"{order}" gives {found}' in told
        told = self.told("undone")
        model, run, said = visible.REAL[0]
        for first, values in (('{"layers"', model), ('{"gpus"', run), ('{"rate"', said)):
            assert shown(first) == values
        seconds, mfu, hfu = answers.undone(model, run, said)
        assert f"{cut(seconds, 2)}… s, MFU {cut(mfu, 4):.4f}…, HFU {cut(hfu, 4)}…" in told
        told = self.told("layout")
        gpus, cluster, model, batch = visible.DESIGNS[0]
        for first, values in (('{"gpus"', {"gpus": gpus} | cluster), ('{"layers"', model)):
            assert shown(first) == values
        *found, seconds = answers.layout({"gpus": gpus} | cluster, model, batch)
        choice = ", ".join(map(str, found))
        assert f"{batch} sequences: ({choice}, {cut(seconds, 2)}…)" in told
        told, case = self.told("rhythm"), ([(16384, 5.0)], 50676.0, 0.0)
        costs = {"copy": 60, "write": 0, "near": 0, "far": 600}
        *found, steps = answers.rhythm(*case, costs)
        choice = ", ".join(map(str, found))
        assert f"rhythm({', '.join(map(str, case))}, " in told
        assert f"({choice}, {cut(steps, 2)}…): a copy each {found[1] * 5 / 60:.0f} minutes" in told

    def test_what_crosses_is_what_the_plan_has_in_two_nodes(self):
        probe, sizes = self.load("probe"), {"t": 2, "c": 2, "d": 2, "p": 3, "e": 2}
        layout = Layout(**sizes)
        for axis in ("t", "c", "d"):
            sent = dict.fromkeys("tcdpe", 0) | {axis: 1}
            pairs = probe.right_crossed("tcdp", sizes, 8, sent)
            spread = [group for group in groups(layout, axis) if len(nodes(group, 8)) > 1]
            assert (pairs != {}) == (spread != [])
        sent = dict.fromkeys("tcdpe", 0) | {"e": 1}
        pairs = probe.right_crossed("tcdp", sizes, 3, sent)
        rows = [group for group in groups(layout, "e") if len(nodes(group, 3)) > 1]
        assert sum(pairs.values()) == 2 * len(rows)

    def test_conventions_are_those_of_published_runs(self):
        answers, visible = self.load("answers"), self.load("test_composing")
        found = [answers.undone(*case) for case in visible.REAL]
        for (seconds, *_), published in zip(found[:3], (60.1, 50.2, 44.4), strict=True):
            assert seconds == approx(published, rel=0.006)  # rates were said in whole TFLOP/s
        tokens = [
            run["sequences"] * run["tokens"] / run["gpus"] / seconds
            for (_, run, _), (seconds, *_) in zip(visible.REAL, found, strict=True)
        ]
        for i, published in ((3, 12273), (4, 14451), (5, 292), (7, 2308)):
            assert tokens[i] == approx(published, rel=0.002)

    def test_a_layout_has_the_bubble_and_the_flops_of_the_plan(self):
        probe, visible = self.load("probe"), self.load("test_composing")
        gpus, cluster, model, batch = visible.DESIGNS[0]
        cluster, model = (
            {"gpus": gpus} | cluster | {"inside": 1e30, "outside": 1e30},
            model | {"head": 0},
        )
        _, seconds, parts = probe.one_layout(cluster, model, batch, 8, 8, 16, 3, 1)
        ideal, bubble, *_ = parts.values()
        assert bubble / ideal == approx(overhead(8, 96, 3))
        flops = 6 * batch * model["tokens"] * model["layers"] * model["layer"]
        assert ideal == approx(flops / gpus / cluster["rate"])
        costs = estimate(
            SHAPES["gpt3-175b"], Layout(p=8, t=8, d=16, v=3), batch, CLUSTERS["selene"].of(gpus)
        )
        assert seconds == approx(costs.seconds, rel=0.5)  # of other constants, and nothing else

    def test_the_readme_has_the_points_and_the_bytes_that_are_graded(self, solved):
        readme, probe = (self.solutions() / "README.md").read_text(), self.load("probe")
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        case = (1, 1, 2, 2), (((4, 6),),), (True,), None, False, 1.0
        assert probe.numbers(case) == 96 and "96 numbers, 768 bytes" in readme
        assert f"{probe.SPARE} numbers, {probe.SPARE * probe.NUMBER} bytes" in readme
        probe.check_bytes(case, [{"sent": 320}] * 4)
        with raises(probe.WrongAnswer):
            probe.check_bytes(case, [{"sent": 320}] * 3 + [{"sent": 321}])

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def crossed(order, sizes, per_node, sent):\n"
            "    from weft.plan.processes import groups\n"
            "    return groups(sizes, 't')\n"
            "def undone(model, run, said):\n"
            "    from weft.plan.shape import ModelShape\n"
            "    return ModelShape(**model).flops(1)\n"
            "def layout(cluster, model, batch):\n"
            "    from weft.plan.composing import search\n"
            "    return search(model, batch, cluster)\n"
        )
        closed = ("test_crossed", "test_undone", "test_layout_memory")
        self.closed(tmp_path, cheat, closed, only="crossed,undone,layout")

    def test_what_is_expected_cannot_be_imported_by_an_answer(self, tmp_path):
        for name in ("probe.py", "ranks.py"):
            copy(self.solutions() / name, tmp_path)
        cheat = (
            "def crossed(order, sizes, per_node, sent):\n"
            "    from probe import right_crossed\n"
            "    return right_crossed(order, sizes, per_node, sent)\n"
            "def rhythm(runs, hours, share, costs):\n"
            "    import probe\n"
            "    lost, a, k = probe.best_rhythm(runs[0], hours, share, costs)\n"
            "    return 0, a, k, (1 - lost) * 86400 / runs[0][1]\n"
        )
        closed = ("test_crossed", "test_rhythm")
        self.closed(tmp_path, cheat, closed, only="crossed,rhythm")
