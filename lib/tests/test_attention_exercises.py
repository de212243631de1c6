"""The attention exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

from graded import Exercises

from weft.plan.attention.tiling import footprint, traffic


class TestAttention(Exercises):
    stem = "attention"
    functions = ("merge", "moved", "forward", "dkdv", "attend")
    tiers = ("page", "chip")
    secrets = ("_hidden(", "addmm_")

    def test_the_targets_in_the_docstrings_are_computed_ones(self):
        answers = self.load("answers")
        visible = self.load("test_attention")
        sizes = 1024, 1024, 64, 64, 2, 128, 64
        second, first = traffic(*sizes, "fa2"), traffic(*sizes, "fa1")
        assert "T = S = 1024, K = V = 64, size 2 and tiles of 128 by 64" in self.told("moved")
        assert f'"fa2" reads {second[0]} bytes and writes {second[1]};' in self.told("moved")
        assert f'"fa1" reads {first[0]} and writes {first[1]}.' in self.told("moved")
        assert f'With causal, "fa2" reads {traffic(*sizes, "fa2", True)[0]}.' in self.told("moved")
        o, lse = answers.merge([([1.0, 5.0], 0.0), ([3.0, 1.0], 0.0)])
        assert f"merge to ({o}, {int(lse * 1e4) / 1e4}…)" in self.told("merge")
        T, S, K, V, tile_q, tile_k = visible.GRADED
        assert f"T = {T}, S = {S}, K = V = {K} and tiles of {tile_q} by {tile_k}" in self.told(
            "forward"
        )
        assert (K, tile_q) == (V, tile_k) and "there are 16 KiB" in self.told("forward")
        assert "there are 20 KiB" in self.told("dkdv")

    def test_the_room_holds_tiles_with_some_to_spare_and_no_row_of_them(self):
        visible = self.load("test_attention")
        T, S, K, V, tile_q, tile_k = visible.GRADED
        least = footprint(tile_q, tile_k, K, V, 4)
        spare = 4 * (tile_q * tile_k + tile_q * V)  # another tile of scores, and one of the output
        assert least + spare <= 16 * 1024 < least + 4 * tile_q * (S - tile_k)
        assert 4 * S * K > 16 * 1024  # nor do the keys fit
        kept = 4 * (4 * tile_k + 2 * tile_q) * K  # K, V, dK, dV; Q, dO
        assert kept + 4 * 3 * tile_q * tile_k <= 20 * 1024 < kept + 4 * tile_k * T * 2

    def test_the_librarys_own_attention_is_closed(self, tmp_path):
        cheat = (
            "def merge(parts):\n"
            "    from weft.ref.attention import merge\n\n\n"
            "def moved(*sizes):\n"
            "    from weft.plan.attention import traffic\n"
            "    return traffic(*sizes)\n"
        )
        self.closed(tmp_path, cheat, ("test_merge", "test_moved_fa1", "test_moved_fa2"), only="m")
