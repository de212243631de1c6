"""The decoding exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

from graded import Exercises

from weft.plan.decode.cache import bytes_per_token
from weft.plan.shape.model import SHAPES


class TestDecode(Exercises):
    stem = "decode"
    functions = ("fits", "allot", "paged", "piece", "merge")
    tiers = ("page", "chip")
    secrets = ("fade", "free.pop")

    def test_the_targets_in_the_docstrings_are_computed_ones(self):
        answers = self.load("answers")
        visible = self.load("test_decode")
        shape = SHAPES["llama2-70b"]
        sizes = shape.layers, shape.width, shape.heads, shape.groups, 2
        assert "{} layers, width {}, {} heads on {}, size {}:".format(*sizes) in self.told("fits")
        each, count = answers.fits(10**10, 1000, *sizes, 16)
        assert each == bytes_per_token(shape) and f": {each} bytes for each token" in self.told(
            "fits"
        )
        assert f"In 10**10 bytes there is room for {count} sequences of 1000 tokens" in self.told(
            "fits"
        )
        length, block, H, G, K, V = visible.GRADED
        graded = f"H = {H}, G = {G}, K = V = {K} and {length} tokens in blocks of {block}"
        assert K == V and f"{graded}, there are 8 KiB" in self.told("paged")

    def test_the_room_holds_a_block_of_each_and_not_all_keys(self):
        visible = self.load("test_decode")
        length, block, H, G, K, V = visible.GRADED
        rows = H // G
        tile = 4 * (block * (K + V) + rows * (K + V) + 2 * rows * block)
        assert 1.25 * tile < 8 * 1024 < 4 * length * K

    def test_the_librarys_own_books_and_kernels_are_closed(self, tmp_path):
        cheat = (
            "def fits(memory, tokens, layers, width, heads, kv_heads, size, block):\n"
            "    from weft.plan.decode import bytes_per_token\n"
            "    from weft.plan.shape import ModelShape\n"
            "    shape = ModelShape(layers, width, heads, 1, 1, kv_heads)\n"
            "    return bytes_per_token(shape, size), 0\n\n\n"
            "def allot(operations, count, block):\n"
            "    from weft.plan.decode.blocks import Blocks\n"
            "    pool = Blocks(count, block)\n\n\n"
            "def paged(q, k_cache, v_cache, table, length, o, sram):\n"
            "    from weft.ref.decode import paged_attention\n\n\n"
            "def piece(*arguments):\n"
            "    from weft.kernels.decode import _piece\n\n\n"
            "def merge(*arguments):\n"
            "    from weft.kernels.decode import _merge\n"
        )
        result = self.closed(tmp_path, cheat, ("test_fits_bytes", "test_allot", "test_paged"))
        assert result.score == 0
