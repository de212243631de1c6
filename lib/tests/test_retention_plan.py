"""What retention's decays reach and its models cost: closed forms against sums and matmuls."""

import doctest
from importlib import import_module
from itertools import accumulate
from math import log

import pytest

from weft.plan import decode, linear, retention
from weft.plan.precision import FORMATS
from weft.plan.retention import RETNETS, RetentionModel
from weft.plan.shape import SHAPES, ModelShape


@pytest.mark.parametrize("name", ["models", "scales", "serving", "training"])
def test_examples_in_docstrings(name):
    result = doctest.testmod(import_module(f"weft.plan.retention.{name}"))
    assert result.attempted and not result.failed


@pytest.mark.parametrize("decay", [0.5, *linear.DECAYS(9), *retention.spread(3)])
def test_reaches_are_sums_of_decays(decay):
    half = retention.half_life(decay)
    assert decay**half == pytest.approx(0.5)
    sums = list(accumulate(decay**i for i in range(300)))
    assert [retention.decay_sum(decay, n + 1) for n in (0, 1, 299)] == pytest.approx(
        [sums[0], sums[1], sums[299]]
    )
    assert retention.decay_sum(decay, 10**7) == pytest.approx(retention.horizon(decay))


def test_decays_of_the_experiments_are_between_two_horizons():
    assert retention.spread(8)[:2] == pytest.approx([0.96875, 0.97897], abs=1e-5)
    assert retention.spread(8)[-1] == 1 - 1 / 512 and retention.spread(1) == [0.96875]
    with pytest.raises(ValueError, match="shortest is 1, must be above 1"):
        retention.spread(4, shortest=1)


def test_lightnings_slopes_fall_over_heads_and_layers():
    first, last = (retention.lightning(64, layer, 80) for layer in (0, 79))
    assert [-log(x) / (1 + 1e-5) for x in (first[0], first[63])] == pytest.approx(
        [2 ** (-1 / 8), 2**-8]
    )
    assert first == sorted(first) and min(last) > max(first)
    for decay, faster in zip(last, first, strict=True):
        assert log(decay) / log(faster) == pytest.approx(1e-5 / (1 + 1e-5))
    with pytest.raises(ValueError, match="H is 12, must be a power of two"):
        retention.lightning(12)


@pytest.mark.parametrize("format", ["fp16", "fp32"])
@pytest.mark.parametrize("decay", linear.DECAYS(3))
def test_a_split_decay_overflows_after_as_many_tokens_as_the_closed_form_says(decay, format):
    """A key that is multiplied by decay^-t, token after token."""
    factor, tokens = 1.0, 0
    while factor / decay <= FORMATS[format].max:
        factor, tokens = factor / decay, tokens + 1
    assert tokens == linear.most_rows(decay, format)
    if decay == 31 / 32:
        assert tokens == {"fp16": 349, "fp32": 2794}[format]


def test_a_retnet_has_as_many_parameters_as_the_transformer_beside_it():
    for one in RETNETS.values():
        D, heads = one.width, one.heads
        assert one.V * heads == 2 * D
        retention_layer = D * (2 * D + 2 * 2 * D) + 2 * D * D  # q, k; v, gate; out
        mlp = 2 * D * 2 * D
        assert one.params == one.layers * (retention_layer + mlp)
        attention = ModelShape(one.layers, D, heads=32, vocab=1, seq=1)
        assert one.cache() == decode.bytes_per_token(attention)
        grouped = ModelShape(one.layers, D, heads=32, vocab=1, seq=1, kv_heads=8)
        assert one.cache(1 / 4) == decode.bytes_per_token(grouped)
        wider = (one.K + one.V) * heads / (2 * D)  # RetNet's keys and values beside attention's
        assert one.state() / one.cache() == linear.same_as_cache(heads, one.K, one.V) * wider
    assert RETNETS["6.7b"].cache() == decode.bytes_per_token(SHAPES["llama2-7b"])


def test_serving_counts_sequences_one_by_one():
    kept = retention.ServedModel(weights=100, state=7, token=3)
    assert kept.bytes(4, 10) == 100 + 4 * (7 + 30)
    assert kept.bytes(4, 10, page=8) == 100 + 4 * (7 + 48)
    assert kept.moved(4, 10) == 100 + 4 * (14 + 30)
    for page in (1, 8):
        most = kept.most(1000, 10, page)
        assert kept.bytes(most, 10, page) <= 1000 < kept.bytes(most + 1, 10, page)
    assert kept.rate(4, 10, 552) == 8
    assert kept.most(99, 10) == 0 and retention.ServedModel(100).most(200, 10) == float("inf")


def test_a_token_costs_what_its_matmuls_cost():
    one, T, C = RetentionModel(3, 24, 2), 32, 8
    head = T * C * (2 * one.K + 2 * one.V) + 2 * T * 2 * one.K * one.V  # scores, values; state
    forward = 3 * (2 * head / T)
    assert retention.token_flops(one, T, C) == 6 * one.params + 3 * forward
    scores = 2 * one.heads * (T * one.K + T * one.K) / 2  # half of them hidden; values as keys
    assert retention.token_flops(one, T) == 6 * one.params + 3 * 3.5 * scores
    longer = [retention.speedup(one, T, C) for T in (32, 64, 128)]
    assert longer == sorted(longer)
