"""The pipeline exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

from ast import literal_eval
from itertools import product

from graded import Exercises
from pytest import approx, mark, raises

from weft.plan.pipeline.schedules import interleaved, one_f_one_b
from weft.plan.simulate.engine import simulate


class TestPipeline(Exercises):
    stem = "pipeline"
    functions = ("eager", "flexible", "cut", "unequal", "run_row")
    tiers = styled = ("page", "processes")
    secrets = ("_keep", "fewest(", "layers[min(range(p)", "retain_graph")

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible, probe = (self.load(x) for x in ("answers", "test_pipeline", "probe"))
        hidden = self.load("test_pipeline_hidden")
        f, bw, hops, m = 2, 4, [1, 4, 1], 8
        rows = answers.eager(f, bw, hops, m)
        took = probe.eager_time(rows, f, bw, hops)
        plain = probe.eager_time(one_f_one_b(4, m).rows, f, bw, hops)
        assert took == probe.eager_least(f, bw, hops, m)
        *most, last = hidden.fewest(probe, f, bw, hops)
        told = self.told("eager")
        assert f"{f=}, {bw=}, {hops=} and {m=}, a step takes {took} micro" in told
        assert f"1F1B takes {plain}, and" in told
        assert f"may keep {', '.join(map(str, most))} and {last} alive" in told
        live, makespan = probe.flexible_limits(3, 8, 2)
        shown = f"makespan is {makespan}, with {', '.join(map(str, live))} activations"
        assert f"At p = 3, m = 8, v = 2 and f = b = w = 1 the {shown}" in self.told("flexible")
        model, box, nodes, batch = visible.REAL[1]
        cluster, told = visible.real(box, nodes), self.told("cut")
        *found, seconds = answers.cut(cluster, model, batch)
        shown = ", ".join(map(str, found))
        assert f"{batch} sequences: ({shown}, {int(seconds * 1e5) / 1e5}...)" in told
        for first, values in (('{"nodes": ', cluster), ('{"layers": ', model)):
            words = told[told.index(first) :]
            assert literal_eval(words[: words.index("}") + 1]) == values
        best = hidden.best([1, 1, 3], [3, 6, 2], 4, [4, 3, 2])
        assert f"limit 4, 3, 2 that is {best:g}" in self.told("unequal")

    def test_the_targets_in_the_visible_tests_are_the_best_there_are(self):
        visible, probe = self.load("test_pipeline"), self.load("probe")
        hidden = self.load("test_pipeline_hidden")
        for f, bw, m, limit, makespan in visible.STAGES:
            assert hidden.best(f, bw, m, limit) == makespan
        for f, bw, hops, fewest in visible.SLOW:
            assert hidden.fewest(probe, f, bw, hops) == fewest

    @mark.parametrize(("f", "bw", "hops"), [(1, 1, [3, 0]), (2, 3, [1, 4, 2]), (3, 4, [7, 0])])
    def test_no_stage_can_do_with_fewer_alive_whatever_the_others_have(self, f, bw, hops):
        probe, hidden = self.load("probe"), self.load("test_pipeline_hidden")
        m, fewest = 600, hidden.fewest(probe, f, bw, hops)
        most = probe.eager_least(f, bw, hops, m)
        assert probe.eager_time(hidden.kept_rows(fewest, m), f, bw, hops) == most
        tried = 0
        for more in product(range(-1, 3), repeat=len(hops)):
            alive = [n + k for n, k in zip(fewest, (*more, 0), strict=True)]
            if min(more) < 0 and min(alive) > 0:
                rows = hidden.kept_rows(alive, m)
                assert probe.eager_time(rows, f, bw, hops) > most, alive
                tried += 1
        assert tried > 3

    def test_hops_that_are_alike_are_the_simulators(self):
        probe = self.load("probe")
        for p, m, c in ((1, 3, 0), (3, 5, 0), (4, 7, 2), (3, 2, 5)):
            plan = one_f_one_b(p, m)
            took = simulate(plan, 2, 3, 1, c).makespan
            assert probe.eager_time(plan.rows, 2, 4, [c] * (p - 1)) == took
            assert probe.live(plan) == list(simulate(plan).peak_live)

    def test_groups_that_p_divides_take_the_papers_time_and_less_memory(self):
        probe = self.load("probe")
        for p, m, v in ((2, 4, 2), (3, 6, 2), (4, 8, 3), (3, 9, 1)):
            limits, makespan = probe.flexible_limits(p, m, v)
            plain = simulate(interleaved(p, m, v))
            assert makespan == plain.makespan
            assert all(x <= y for x, y in zip(limits, plain.peak_live, strict=True))

    def test_the_shortest_step_is_that_of_all_cuts(self):
        visible, probe = self.load("test_pipeline"), self.load("probe")
        tried = 0
        for model, nodes, batch in visible.FITTED:
            L = model["layers"]
            for cluster in visible.edges(probe, nodes, model, batch):
                for p in probe.depths(cluster, model, batch):
                    ranks = [probe.Rank(cluster, model, batch, p, s) for s in range(p)]
                    cuts = (x for x in product(range(1, L + 1), repeat=p) if sum(x) == L)
                    slowest = min(
                        max(rank.fastest(n) for rank, n in zip(ranks, one, strict=True))
                        for one in cuts
                    )
                    found = probe.cut_shortest(cluster, model, batch, p)
                    assert found == approx((ranks[0].m + p - 1) * slowest)
                    tried += 1
        assert tried > 100

    def test_the_readme_has_the_points_and_the_sizes_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        probe, visible = self.load("probe"), self.load("test_pipeline")
        hidden = self.load("test_pipeline_hidden")
        first, second = hidden.fewest(probe, 2, 4, [4])
        assert f"f = 2, bw = 4 and a hop of 4 need {first} and {second}:" in readme
        limits, _ = probe.flexible_limits(3, 8, 2)
        assert f"(2 - 1) 4 + 3 = {limits[0]} activations" in readme
        rank = probe.Rank({"nodes": 4, "memory": 1}, visible.TINY, 4, 2, 0)
        assert (rank.m, rank.replicas, visible.TINY["kept"]) == (2, 2, 60)
        states = rank.nbytes(2, 0) - 2 * 2 * 60
        assert f"12 / 2 bytes: {states:g}." in readme
        assert f"while its backward runs: {rank.nbytes(2, 1):g} bytes in all" in readme
        assert f"With none recomputed they are {rank.nbytes(2, 0):g}." in readme

    def test_the_bytes_in_the_readme_are_those_that_are_asked_for(self):
        probe, visible = self.load("probe"), self.load("test_pipeline")
        case = visible.lower(one_f_one_b(2, 1)), [3], 2
        rows = [["SEND_F0", "RECV_B0"], ["RECV_F0", "SEND_B0"]]
        probe.check_messages(case, [{"messages": row, "sent": 48} for row in rows])
        with raises(probe.WrongAnswer):
            probe.check_messages(case, [{"messages": row, "sent": 49} for row in rows])
        assert "3 rows of width 2 has 48" in (self.solutions() / "README.md").read_text()

    def test_the_tensors_in_the_readme_are_those_that_may_be_kept(self):
        probe, visible = self.load("probe"), self.load("test_pipeline")
        for fuse in (False, True):
            plan = visible.lower(visible.zb_h1(2, 4), fuse=fuse)
            most = probe.most_tensors(plan, 0)
            told = f"On 2 ranks with ZB-H1 rank 0 has {most - 1} outputs and a gradient: {most} ten"
            assert told in (self.solutions() / "README.md").read_text()
            measured = [{"alive": 0, "tensors": probe.most_tensors(plan, r) + 3} for r in (0, 1)]
            probe.check_alive((plan, [1] * 4, 2), measured)
            measured[1]["tensors"] += 1
            with raises(probe.WrongAnswer):
                probe.check_alive((plan, [1] * 4, 2), measured)

    @mark.parametrize("p", [1, 1.0, True, "1", [1], None])
    @mark.parametrize("seconds", [None, "x", [1], True, 1j, float("nan"), float("inf"), 10**400])
    def test_a_cut_of_odd_types_is_told_so(self, p, seconds):
        probe, visible = self.load("probe"), self.load("test_pipeline")
        cluster = {"nodes": 2, "memory": 1e9, "rate": 1e3}
        with raises(probe.WrongAnswer, match="seconds" if type(p) is int else "a whole"):
            probe.check_cut("cut", cluster, visible.TINY, 2, (p, [3], [0], seconds))

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def eager(f, bw, hops, m):\n"
            "    from weft.plan.pipeline import one_f_one_b\n"
            "    return one_f_one_b(len(hops) + 1, m).rows\n"
            "def flexible(p, m, v):\n"
            "    from weft.plan.pipeline import interleaved\n"
            "    return interleaved(p, m, v).rows\n"
        )
        closed = ("test_eager_order", "test_flexible_order")
        self.closed(tmp_path, cheat, closed, only="eager,flexible")
