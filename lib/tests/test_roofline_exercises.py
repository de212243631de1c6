"""The roofline exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

import re

from graded import CHIP, TORCH, Exercises

from weft.plan.hardware import CHIPS
from weft.plan.roofline import work as roofline


class TestRoofline(Exercises):
    stem = "roofline"
    functions = ("work", "smallest_batch", "chain_bytes", "mlp", "softmax", "swiglu_kernel")
    tiers = ("page", "chip")
    secrets = ("pairwise", "tl.load")

    def runs(self, row):
        """Whether what a test needs is installed here."""
        name = row.name.removeprefix("test_")
        return CHIP if name.startswith("swiglu") else TORCH or not name.startswith("softmax")

    def test_the_targets_in_the_docstrings_are_computed_ones(self):
        answers = self.load("answers")
        add = roofline.vector_add(1000, size=4)
        assert f"1000 elements of 4 bytes is ({add.flops}, {add.bytes})" in self.told("work")
        h100 = CHIPS["h100"]
        tera = f"{h100.rate('bf16') / 1e12:g} TFLOP/s and {h100.bandwidth / 1e12:g} TB/s"
        rows = roofline.smallest_batch(4096, 4096, 2, h100, "bf16")
        assert f"{tera} a weight of 4096 x 4096 in 2 bytes takes {rows} rows" in self.told(
            "smallest_batch"
        )
        steps, sizes = (
            [("y", ["x", "bias"]), ("z", ["y", "y"])],
            dict.fromkeys(["x", "bias", "y", "z"], 100),
        )
        one, two = (answers.chain_bytes(steps, cuts, sizes, ["z"]) for cuts in ([], [1]))
        assert f"one kernel moves {one} bytes and two kernels move {two}" in self.told(
            "chain_bytes"
        )
        for name, flops in (("norm", 7), ("swiglu", 5)):
            assert re.search(rf'"{name}" [^"]* {flops} FLOPs an element', self.told("mlp"))
        assert roofline.layer_norm(3, 5, 2).flops == 7 * 3 * 5

    def test_the_answers_count_what_the_library_counts(self):
        answers = self.load("answers")
        for m, n, k in ((1, 3, 5), (7, 2, 11)):
            for size in (1, 2, 4):
                cases = {
                    ("vector_add", (n,)): roofline.vector_add(n, size),
                    ("matvec", (m, n)): roofline.matvec(m, n, size),
                    ("matmul", (m, n, k)): roofline.matmul(m, n, k, size),
                    ("layer_norm", (m, n)): roofline.layer_norm(m, n, size),
                    ("attention", (m, n, k)): roofline.attention(m, n, 1, k, size),
                }
                for asked, work in cases.items():
                    assert answers.work(*asked, size) == (work.flops, work.bytes), asked
