"""The benchmark of growing windows at a small size: what it trains and times, not how fast."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from weft.bench.clock import OneDevice
from weft.bench.jobs import BenchRun, chosen
from weft.bench.sparse import growing
from weft.bench.sparse.growing import FULL, GROWING, GrowingSizes, decoder, said, windowed
from weft.nn.transformer import Config
from weft.plan.sparse import pairs
from weft.ref.sparse import longformer

CONFIG = Config(layers=2, width=8, heads=2, seq=16)
VARIANTS = (), (2, 6), (4, 4)
TINY = GrowingSizes(CONFIG, VARIANTS, steps=4, every=2, seeds=2, tested=3, timed=(8, 24))


def test_the_record_has_points_of_every_curve_and_times_over_the_length():
    record = GROWING.record(BenchRun("cpu", given=OneDevice("cpu", 0, 2)), sizes=TINY)
    assert (record.topic, record.name) == ("sparse", "sparse-growing")
    assert "2 layers, width 8, 2 heads" in record.title
    for sights in VARIANTS:
        for step in (2, 4):
            point = record.result(f"loss, step {step}", said(sights))
            assert (point.unit, len(point.samples)) == ("nat", 2)
        for T in (8, 24):
            assert record.result(f"step, T = {T}", said(sights)).value > 0
    assert len(record.results) == 3 * (2 + 2)
    assert GROWING in chosen(["sparse"], ["sparse-growing"])


def test_all_variants_begin_alike_and_read_the_same(monkeypatch):
    seen = []
    monkeypatch.setattr(growing, "decoder", lambda *a: seen.append(decoder(*a)) or seen[-1])
    sizes = TINY._replace(seeds=1, steps=2, rate=0.0, variants=((), (16, 16)))
    losses = [list(growing._curve(sights, sizes, 3)) for sights in sizes.variants]
    torch.testing.assert_close(*losses)  # a window as long as the text is full attention
    for ours, theirs in zip(*(model.parameters() for model in seen), strict=True):
        assert torch.equal(ours, theirs)


def test_a_window_in_blocks_is_the_reference_and_so_is_its_gradient():
    dice = torch.Generator().manual_seed(0)
    for T, window in ((12, 3), (11, 3), (7, 9), (5, 1), (1, 4)):
        shape = 2, T, 3, 4
        q, k, v = (torch.randn(shape, generator=dice, dtype=torch.float64) for _ in range(3))
        given = [x.requires_grad_() for x in (q, k, v)]
        ours, theirs = windowed(*given, window), longformer(*given, window, causal=True)
        torch.testing.assert_close(ours, theirs)
        grads = (torch.autograd.grad(o.square().sum(), given) for o in (ours, theirs))
        torch.testing.assert_close(*grads)


def test_its_work_goes_with_the_length_and_is_twice_what_it_sees():
    work = []
    for T in (256, 512):
        q = torch.zeros(1, T, 1, 8)
        plain = sdpa_kernel(SDPBackend.MATH)  # the fused one is not counted
        with plain, FlopCounterMode(display=False) as counter:
            windowed(q, q, q, 16)
        work.append(sum(counter.get_flop_counts()["Global"].values()))
        assert work[-1] == 4 * 8 * T * 2 * 16
        assert work[-1] / (4 * 8) == pytest.approx(2 * pairs(T, 16, causal=True), rel=0.05)
    assert work[1] == 2 * work[0]


def test_without_the_book_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(growing, "BOOK", tmp_path)
    with pytest.raises(ValueError, match=r"this needs the book's pages: .* has none"):
        GROWING.record(BenchRun("cpu"), sizes=TINY)


def test_the_windows_that_are_compared_see_as_many_pairs():
    T = FULL.config.seq
    seen = [sum(pairs(T, one, causal=True) for one in sights) for sights in FULL.variants if sights]
    assert max(seen) / min(seen) < 1.05
    assert {len(sights) for sights in FULL.variants if sights} == {FULL.config.layers}
    assert len({said(sights) for sights in FULL.variants}) == len(FULL.variants)
