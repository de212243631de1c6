"""Tensor parallelism's benchmarks at a small size: what they measure, not how fast that is."""

from weft.bench.jobs import BenchRun
from weft.bench.tensor import link
from weft.bench.tensor.link import PIECES, PLAIN, PLAN, WiredTensor
from weft.bench.tensor.peers import OURS, STEP, TORCH, WAYS, TensorStep
from weft.run.world import launch


def test_everybody_steps_on_the_same_and_gets_the_same_loss():
    sizes = TensorStep(1, 16, 4, 32, T=8, B=2, ranks=(2,), warmup=0, repeats=2)
    record = STEP.record(BenchRun(), sizes=sizes)
    for way in WAYS:
        peer = "sequence parallel" if WAYS[way][0] else way
        for of, count in (("", 2), ("bytes, ", 1)):
            ours = record.result(f"{of}{way}, 2 ranks", OURS).samples
            theirs = record.result(f"{of}{peer}, 2 ranks", TORCH).samples
            ratio = record.result(f"{of}{way}, 2 ranks", f"{OURS} / {TORCH}").samples
            assert len(ours) == count
            assert ratio == tuple(a / b for a, b in zip(ours, theirs, strict=True))
            if of:
                assert ratio[0] <= 1


def test_matmuls_sleep_in_proportion_to_their_tokens(monkeypatch):
    sizes = WiredTensor(T=16, D=8, F=4, rate=10**5, warmup=0, repeats=2)
    assert sizes.matmul == sizes.sending == 8 * 16 * 8 * 4 / 2 / 10**5
    found = launch(link.measured, 2, sizes, backend="gloo")[0]  # without a wire between them
    assert min(min(taken) for taken in found.values()) > 4 * sizes.matmul
    monkeypatch.setattr(link, "across", lambda sizes: found)
    record = link.LINK.record(BenchRun(), sizes=sizes)
    ratio = record.result("1 × 16 tokens", f"{PIECES} / {PLAIN}").samples
    assert ratio == tuple(a / b for a, b in zip(found[PIECES], found[PLAIN], strict=True))
    assert record.result("1 × 16 tokens", PLAN).samples == (4 * 1.5 * sizes.matmul,)
