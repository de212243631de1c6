"""The precision exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

from graded import Exercises

from weft.plan.precision.formats import FORMATS
from weft.plan.precision.scale import LossScale
from weft.plan.precision.state import Recipe


class TestPrecision(Exercises):
    stem = "precision"
    functions = ("encode", "walk", "nudge", "adam")
    tiers = ("page", "chip")
    secrets = ("-65536", "min(infinite")

    def test_the_numbers_in_the_docstrings_are_computed_ones(self):
        half = FORMATS["fp16"]
        one, two = f"0x{half.encode(1.0):X}", f"0x{half.encode(-2.0):X}"
        assert f"encode(1.0, 5, 10) is {one}, and encode(-2.0, 5, 10) is {two}" in self.told(
            "encode"
        )
        assert repr(FORMATS["fp32"].max).replace("+", "") in self.told("walk")
        walked = [
            (s.value, s.clean) for s in LossScale(8.0, 0, 2.0, 0.5, 2).walk([True, False, False])
        ]
        assert f"walk([True, False, False], 8.0, 2.0, 0.5, 2) is {walked}" in self.told("walk")
        recipe = Recipe("bf16", "fp16", "fp32", "fp32")
        read = recipe.moved - recipe.state - 2  # not the state and the weight, which are written
        assert f"{read} bytes for each weight" in self.told("adam")

    def test_every_number_of_the_small_formats_is_encoded_as_the_table_promises(self):
        answers = self.load("answers")
        for format in (FORMATS["fp16"], FORMATS["bf16"]):
            for bits in range(2**format.bits):
                x = format.decode(bits)
                got = answers.encode(x, format.exponent, format.fraction)
                assert got == bits or (x != x and format.decode(got) != format.decode(got))

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def encode(x, exponent, fraction):\n"
            "    from weft.plan.precision import Format\n"
            "    return Format('mine', exponent, fraction).encode(x)\n\n\n"
            "def walk(overflows, scale, growth, backoff, interval):\n"
            "    from weft.plan.precision.scale import LossScale\n\n\n"
            "def nudge(*arguments):\n"
            "    from weft.ref.precision.rounding import stochastic\n\n\n"
            "def adam(*arguments):\n"
            "    from weft.kernels.precision import _single\n"
        )
        result = self.closed(tmp_path, cheat, ("test_encode", "test_walk_backs_off"))
        assert result.score == 0
