"""Sliding chunks: the same numbers as the window's definition, and what they cost more."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from weft.meter import live
from weft.plan.sparse import pairs
from weft.ref.sparse import longformer, sliding_chunks


def qkv(T, B=2, H=4, G=2, K=3, V=5):
    dice = torch.Generator().manual_seed(T)
    shapes = (B, T, H, K), (B, T, G, K), (B, T, G, V)
    return [torch.randn(shape, generator=dice, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("window", [1, 2, 3, 8, 40])
def test_they_say_what_the_window_s_definition_says(window):
    for T in (1, 2, 11, 16, 24):
        q, k, v = (x.requires_grad_() for x in qkv(T))
        ours, theirs = sliding_chunks(q, k, v, window), longformer(q, k, v, window)
        torch.testing.assert_close(ours, theirs)
        grads = (torch.autograd.grad(o.square().sum(), (q, k, v)) for o in (ours, theirs))
        torch.testing.assert_close(*grads)


def test_half_precision_is_widened_and_a_scale_is_taken():
    q, k, v = (x.bfloat16() for x in qkv(11))
    o = sliding_chunks(q, k, v, 2, scale=0.3)
    assert o.dtype == torch.bfloat16
    torch.testing.assert_close(o, longformer(q, k, v, 2, scale=0.3))


def test_they_compute_twice_the_scores_and_half_more_of_the_values():
    T, w, K, V = 4096, 32, 1, 1
    q, k, v = qkv(T, 1, 1, 1, K, V)
    with FlopCounterMode(display=False) as counter:
        sliding_chunks(q, k, v, w)
    work = sum(counter.get_flop_counts()["Global"].values()) // 2
    exact = pairs(T, w)
    assert work == 4 * w * w * (T // w + 1) * K + 3 * w * w * T // w * V
    assert 4 * w * w * (T // w + 1) / exact == pytest.approx(2, rel=0.02)
    assert 3 * w * T / exact == pytest.approx(1.5, rel=0.02)


def test_the_chunks_scores_alone_take_twice_what_the_window_needs():
    T, w = 4096, 32
    q, k, v = qkv(T, 1, 1, 1, 1, 1)
    with live() as memory:
        sliding_chunks(q, k, v, w)
    band = pairs(T, w) * q.element_size()
    assert memory.peak > 2 * band
    assert memory.peak < T * T * q.element_size() / 8  # and yet in proportion to T


def test_a_window_of_nothing_is_named():
    with pytest.raises(ValueError, match="window is 0, must be a whole number of at least 1"):
        sliding_chunks(*qkv(4), 0)
