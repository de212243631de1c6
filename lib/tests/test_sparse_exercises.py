"""The exercises of sparse attention both ways: solutions get everything, stubs nothing, and each
wrong answer of the zoo loses exactly what it must."""

import torch
from graded import Exercises

from weft.plan import sparse


class TestSparse(Exercises):
    stem = "sparse"
    functions = ("tally", "heard", "hybrid", "attend", "columns")
    tiers = ("page", "chip")
    secrets = ("bisect_right(marked", "reversed(layers)")

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible, probe, hidden = (
            self.load(name) for name in ("answers", "test_sparse", "probe", "test_sparse_hidden")
        )
        assert f"tally(12, 3, [5], 4, 2) is {probe.counted((12, 3, [5], 4, 2))}" in self.told(
            "tally"
        )
        case = 12, [[(2, 0, 2)], [(1, 0, 1), (1, 1, 4)]], 9
        assert f"heard({', '.join(map(str, case))}) is {hidden.heard(case)}" in self.told("heard")
        for *case, right in (*visible.ONE_HEAD, *visible.HEADS):
            assert hidden.heard(tuple(case)) == right
        model, room, rate, chats, prompt, seconds = visible.REAL[0]
        p, w, kept, took = answers.hybrid(model, room, rate, chats, prompt, seconds)
        told = self.told("hybrid")
        assert f"in {seconds} seconds" in told
        assert f"that is ({p}, {w}, {kept}, {int(took * 1e5) / 1e5}…)" in told

    def test_long_tallies_are_those_of_tensors_of_all_queries(self):
        for (T, w, marked, rows, columns), right in self.load("test_sparse").LONG:
            if marked == [*range(len(marked))]:
                more = 1, len(marked), True
                assert right[0] == sparse.pairs(T, w - 1, *more)
                assert rows != columns or right[1] == sparse.touched(T, rows, w - 1, *more)
            if T > 10**7:
                continue
            i, known = torch.arange(T), torch.tensor(marked, dtype=torch.long)
            low = (i - w + 1).clamp(min=0)
            low[known] = 0
            before = torch.searchsorted(known, low)
            pairs = int((i + 1 - low + before).sum())
            first = i[::rows].contiguous()
            last = (first + rows).clamp(max=T) - 1
            whole = torch.searchsorted(known, first) < torch.searchsorted(known, last, right=True)
            begin = torch.where(whole, 0, (first - w + 1).clamp(min=0)) // columns
            held = torch.searchsorted((known // columns).unique(), begin)
            assert (pairs, int((last // columns + 1 - begin + held).sum())) == right

    def test_a_design_takes_and_keeps_what_the_plan_has(self):
        visible, probe = self.load("test_sparse"), self.load("probe")
        model, T = visible.LLAMA, 131072
        for p, w in ((2, 128), (4, 4096), (8, 1024)):
            kept, took = probe.told_design(model, 1.0, [T], T, p, w)
            full_kept = model["layers"] * T * 2 * 2 * model["kv_heads"] * model["head"]
            assert abs(kept / full_kept - sparse.cache_share(T, w, p - 1)) < 1e-12
            square = 4 * model["block"] ** 2 * model["heads"] * model["head"] * model["layers"]
            dense = square * sparse.touched(T, model["block"], T, causal=True)
            share = sparse.time_share(T, model["block"], w - 1, model["ratio"])
            assert abs(took / dense - (1 + (p - 1) * share) / p) < 1e-12

    def test_the_readme_has_the_points_and_the_sizes_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        visible = self.load("test_sparse")
        T, H, G, K, top, block = (
            visible.GRADED[name] for name in ("T", "H", "G", "K", "top", "block")
        )
        assert f"T = {T}, H = {H}, G = {G}, K = {K}, four blocks of {block}" in readme and top == 4
        assert f"{4 * T * H * K:,} bytes" in readme
        assert H // G * block == H * K and visible.ROOM == 12 * 4 * T * H * K
        assert f"{visible.ROOM:,} bytes" in readme
        assert 4 * T * T > visible.ROOM and f"{4 * T * T:,}" in readme
        assert f"{2 * 4 * T * G * top * block * K:,}" in readme
        assert f"{4 * T * H * top * K:,}" in readme

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def tally(T, w, marked, rows, columns):\n"
            "    from weft.plan.sparse import pairs\n"
            "    return pairs(T, w - 1, causal=True), 0\n"
            "def heard(T, layers, token):\n"
            "    from weft.plan.sparse import spread\n"
            "    return [*spread(layers)]\n"
            "def attend(q, score, cache, top, block):\n"
            "    from weft.ref.sparse import block_sparse\n"
            "    return block_sparse(q, q, q, score > 0, block)\n"
        )
        closed = ("test_tally_pairs", "test_heard", "test_attend")
        self.closed(tmp_path, cheat, closed, only="tally,heard,attend")
