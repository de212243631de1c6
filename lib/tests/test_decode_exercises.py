"""The exercises of decode both ways: solutions get everything, stubs nothing, and each wrong
answer of the zoo loses exactly what it must."""

from ast import literal_eval
from fractions import Fraction
from itertools import permutations
from math import prod

from graded import CHIP, Exercises

from weft.plan.decode import Server, bytes_per_token, expected_tokens
from weft.plan.decode.server import SERVED
from weft.plan.hardware import CHIPS


class TestDecode(Exercises):
    stem = "decode"
    functions = ("prefix", "verify", "draft", "cascade", "latent")
    tiers = ("page", "chip")
    secrets = ("idle.sort", "b_turned")

    def test_the_examples_in_the_docstrings_are_computed_ones(self):
        answers, visible = self.load("answers"), self.load("test_decode")
        told = self.told("prefix")
        operations = literal_eval(told[told.index("[[") : told.index(", count=3")])
        for count in (3, 4):
            found = answers.prefix(operations, count, 2)
            assert found == self.load("test_decode_hidden").followed(operations, count, 2)
            assert f"count={count}" in told and f"{found}" in told
        q, p = [[0.5, 0.25, 0.25]] * 3, [[0.25, 0.25, 0.5]] * 3
        told = self.told("verify")
        assert f"With q = [{q[0]}, …] and p = [{p[0]}, …]" in told
        for u in (0.499, 0.501):
            one = answers.verify([-1, 0], [-1, 0], q, p, [u, 0.0, 0.0])
            assert (one[0] == 0) == (u < 0.5)
        given = [-1, 0, 0], [-1, 0, 1], q, p, [0.5, 0.0, 0.9]
        assert answers.verify(*given) == [2]
        assert "verify([-1, 0, 0], [-1, 0, 1], q, p, [0.5, 0.0, 0.9]) is [2]" in told
        chip, *rest = visible.REAL[0]
        *choice, rate = answers.draft(visible.real(chip), *rest)
        told = self.told("draft")
        assert (
            f"limit = {rest[-1]}: ({', '.join(map(repr, choice))}, {int(rate * 100) / 100}…)"
            in told
        )
        assert f"context = {rest[-2]}" in told and "70B on H100s" in told
        for first, values in (("node = ", visible.real(chip)), ("model = ", rest[0])):
            words = told[told.index(first) + len(first) :]
            assert literal_eval(words[: words.index("}") + 1]) == values
        words = told[told.index("drafts = ") + len("drafts = ") :]
        assert literal_eval(words[: words.index("}]") + 2]) == rest[1]

    def test_what_is_right_of_prefixes_is_what_real_blocks_do(self):
        visible, hidden = self.load("test_decode"), self.load("test_decode_hidden")
        cases = [(visible.MANY, *case) for case in visible.FOUND]
        for count, block, operations, right in (*cases, *visible.ROOM, *visible.EVICTED):
            assert hidden.followed(operations, count, block) == right

    def test_what_is_right_of_guesses_has_the_models_chances(self):
        hidden, parts = self.load("test_decode_hidden"), 360
        q, p = [3, 1, 2], [1, 3, 2]
        for count in (1, 2, 3):
            words = [Fraction(0)] * 3
            for order in permutations(range(3), count):
                left = [sum(q) - sum(q[x] for x in order[:i]) for i in range(count)]
                chance = prod(Fraction(q[x], all) for x, all in zip(order, left, strict=True))
                tree = [-1, *[0] * count], [0, *order], [q] * 4, [p] * 4
                fallen = []
                for _ in range(count + 1):
                    us = [Fraction(2 * i + 1, 2 * parts) for i in range(parts)]
                    got = [hidden.walked(*tree, [*fallen, u, *[0] * 4]) for u in us]
                    last = len(fallen) == count
                    stood = got if last else [one for one in got if len(one) > 1]
                    at = order[len(fallen)] if not last else None
                    stood = stood if last else [one for one in stood if one[0] == at]
                    for one in stood:
                        words[one[0]] += chance / parts
                    chance *= Fraction(parts - len(stood), parts)
                    fallen.append(us[-1])
                    if not chance:
                        break
            assert words == [Fraction(x, sum(p)) for x in p]

    def test_what_a_draft_is_held_to_is_the_servers_count(self):
        probe, visible = self.load("probe"), self.load("test_decode")
        shape, chip = SERVED["llama3-70b"], CHIPS["h100"]
        assert visible.B70["params"] == shape.params
        assert visible.B70["cache"] == bytes_per_token(shape)
        small = SERVED["llama3-8b"]
        assert (small.params, bytes_per_token(small)) == tuple(
            visible.B8[name] for name in ("params", "cache")
        )
        node = {"memory": chip.memory, "bandwidth": chip.bandwidth, "rate": chip.rate("bf16")}
        node |= {"gpus": 8, "wait": 1e-5}
        one = visible.ONE | {"right": [0.7] * 4}
        server = Server(shape, chip, 4, wait=2 * shape.layers * 1e-5)
        for B in (4, 400):
            seconds = sum(probe.passed(node, visible.B70, 4, B, 5, 8192).values())
            # The library leaves out the input embedding, and the chip's rate bounds attention, too.
            assert 1 < seconds / server.seconds(B, 8192, T=5) < 1.04
        *_, made = probe.stepped(node, visible.B70, one, 8192, 4, 4, 1)
        assert abs(made - expected_tokens(0.7, 4)) < 1e-12

    def test_drafts_of_every_kind_are_best_somewhere(self):
        probe, visible = self.load("probe"), self.load("test_decode")
        best = [probe.best_draft(visible.real(chip), *rest) for chip, *rest in visible.REAL]
        assert {one[1] for one in best} >= {"1B", "text", "head", None}
        assert {one[0] for one in best} == {1, 2, 4, 8} and len({one[2] for one in best}) >= 4

    def test_the_readme_has_the_points_and_the_sizes_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        visible = self.load("test_decode")
        lengths, shared, block, H, G, K, V = visible.GRADED
        B, R = len(lengths), H // G
        assert f"{B} sequences have {shared} blocks of {block} tokens in front" in readme
        assert f"H = {H}, G = {G}, K = V = {K}" in readme and K == V
        rows, numbers = B * R, 4
        held = rows * (K + V + 2) * numbers
        tile, scores = block * K * numbers, rows * block * numbers
        for words in (f"{held:,} bytes", f"{tile:,}", f"{scores:,}", f"{visible.CAPACITY:,}"):
            assert words in readme, words
        assert 1.1 * (held + tile + 2 * scores) < visible.CAPACITY < held + (2 * shared - 1) * tile

    def test_a_solution_has_room_to_spare_and_less_is_too_little(self):
        if not CHIP:
            return
        probe, visible = self.load("probe"), self.load("test_decode")
        probe.warm()
        answers = self.load("answers")
        assert not probe.cascade(answers, *visible.GRADED, int(visible.CAPACITY / 1.2))["wrong"]

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def prefix(operations, count, block):\n"
            "    from weft.plan.decode.blocks import Blocks\n"
            "    return Blocks(count, block)\n"
            "def draft(node, model, drafts, context, limit):\n"
            "    from weft.plan.decode import speculation\n"
            "def cascade(*arguments):\n"
            "    from weft.ref.decode import paged_attention\n"
        )
        closed = ("test_prefix", "test_draft_fits", "test_cascade")
        self.closed(tmp_path, cheat, closed, only="prefix,draft,cascade")
