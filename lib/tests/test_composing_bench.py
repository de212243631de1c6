"""Composing's benchmark at a small size: what it measures, not how fast that is."""

from weft.bench.composing.peers import OURS, STEP, TORCH, WAYS, ComposingStep
from weft.bench.jobs import BenchRun


def test_both_step_on_the_same_and_get_the_same_losses():
    sizes = ComposingStep(2, 16, 4, 32, T=8, B=8, warmup=0, repeats=2)
    record = STEP.record(BenchRun(), sizes=sizes)
    for way in WAYS:
        for of, count in (("", 2), ("bytes, ", 1)):
            ours = record.result(f"{of}{way}", OURS).samples
            theirs = record.result(f"{of}{way}", TORCH).samples
            ratio = record.result(f"{of}{way}", f"{OURS} / {TORCH}").samples
            assert len(ours) == count
            assert ratio == tuple(a / b for a, b in zip(ours, theirs, strict=True))
