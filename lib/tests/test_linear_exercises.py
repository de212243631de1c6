"""The exercises on attention without the softmax both ways: solutions get everything, stubs
nothing, and each wrong answer of the zoo loses exactly what it must."""

from graded import TORCH, Exercises

from weft.plan.linear import sent, state_bytes


class TestLinear(Exercises):
    stem = "linear"
    functions = ("hybrid", "packed", "kda", "both_ways", "replay")
    tiers = ("page", "processes", "chip")
    secrets = ("ways.reverse", "solve_triangular")

    def runs(self, row):
        tensors = row.tier == "page" and not row.name.startswith("test_hybrid")
        return TORCH if tensors else super().runs(row)

    def test_the_targets_in_the_docstrings_are_computed_ones(self):
        answers, told = self.load("answers"), self.told("hybrid")
        of = 32, 128, 128, 2, 256, 64, 30000, 20000
        assert (
            "48 layers, 32 states of 128 x 128, 2 kv heads of width 256, 64 sequences with" in told
        )
        assert "30000 tokens in common and 20000 each of its own, 46 * 10**9 bytes of room" in told
        plain, drafts = (answers.hybrid(48, 46 * 10**9, 10**11, *of, n) for n in (0, 3))
        assert f"and 10**11 in a step: {plain}, and with 3 drafts {drafts}." in told

    def test_the_readme_has_the_points_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function

    def test_the_readme_and_the_docstrings_have_the_limits_that_are_graded(self):
        readme = " ".join((self.solutions() / "README.md").read_text().split())
        visible = self.load("test_linear")
        lengths, K, V, C = visible.GRADED
        T, pairs = sum(lengths), len(lengths) - 1
        assert (T, K, V, C) == visible.GRADED_KDA and visible.MIB == 1 << 20
        assert f"T = {T}, C = {C}, K = V = {K}, all float64; {pairs} documents have" in self.told(
            "packed"
        )
        assert (
            f"{min(lengths)} to {max(lengths[:-1])} tokens, and the last {lengths[-1]}. There is"
            in (self.told("packed"))
        )
        assert f"T = {T}, C = {C}, K = V = {K}, all float64" in self.told("kda")
        for function in ("packed", "kda"):
            each = visible.MOST[function]
            most = f"{each} operations of torch for each chunk, {each * T // C} in all"
            assert most in self.told(function)
            assert f"at most {each} operations" in readme
        assert f"`packed`, {T} tokens in {len(lengths)} documents, C = {C}, K = V = {K}" in readme
        table, states = 8 * T * T, 8 * T * K * V
        some = f"scores would be {table:,}, a state for each token {states:,} and as much again"
        assert f"{visible.MIB:,} bytes. A table of all {some}" in readme
        assert states >= visible.MIB > 8 * T * C * 6  # and six tables of all chunks' scores fit
        few = f"chunk are {8 * C * C:,}, all chunks' {8 * T * C:,}, the outputs {8 * T * V:,}"
        assert f"The scores of a {few}, a state {8 * K * V:,}." in readme
        fades = f"{8 * C * C * K:,} bytes for a chunk, and {8 * T * C * K:,} for all of them"
        assert fades in readme and 8 * T * C * K > visible.MIB
        lengths, K, V = visible.PIECES[-1]
        one = sent(2, 0, 1, 1, K, V, size=8)
        assert f"K = {K} and V = {V}: {one} bytes to the left and {one} to the right" in readme
        assert one == 8 * K * V

    def test_a_state_is_as_large_as_the_librarys(self):
        answers = self.load("answers")
        H, K, V = 3, 5, 7
        every, kept, _ = answers.hybrid(1, 10**9, 10**9, H, K, V, 10**9, 1, 1, 10**9, 0)
        assert every == 2 and kept == 2 * (state_bytes(H, K, V) + 2 * 3 * H * (2 * K + V))

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def hybrid(layers, room, step, H, K, V, *of):\n"
            "    from weft.plan.linear import state_bytes\n"
            "    return layers + 1, state_bytes(H, K, V), 0\n\n\n"
            "def kda(q, k, v, g, beta, C):\n"
            "    from weft.ref.linear.delta import chunked\n"
            "    return chunked(q, k, v, beta, g)\n"
        )
        self.closed(tmp_path, cheat, ("test_hybrid_kept", "test_kda"), only="hybrid,kda")
