"""What each way of context parallelism costs over boxes of GPUs: closed forms, and what decides."""

import pytest

from weft.plan import ring
from weft.plan.collectives import BOXES

H100 = BOXES["dgx-h100"]
MODEL = 32, 8, 128


@pytest.mark.parametrize("method", ring.METHODS)
@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("T", [2**11, 2**14, 2**17])
def test_in_one_box_it_is_the_simulation(T, n, method):
    how = T, n, H100.chip, H100.inside, *MODEL, method
    simulated = sum(ring.seconds(*how, backward=back) for back in (False, True))
    assert ring.pass_seconds(T, n, H100, *MODEL, method) == pytest.approx(simulated, rel=1e-12)


@pytest.mark.parametrize("n", [16, 64])
@pytest.mark.parametrize("T", [2**14, 2**20])
def test_between_boxes_a_ring_has_the_speed_of_one_port(T, n):
    how = T, n, H100.chip, H100.outside, *MODEL
    simulated = sum(ring.seconds(*how, backward=back) for back in (False, True))
    assert ring.pass_seconds(T, n, H100, *MODEL) == pytest.approx(simulated, rel=1e-12)


def test_a_grid_is_an_exchange_and_a_ring_of_fewer_heads():
    T, n = 2**17, 32
    within, _ = ring.sent_in_grid(T, 8, 4, *MODEL)
    exchange = 2 * within / H100.inside.bandwidth + 4 * H100.inside.latency
    ringed = (T, 4, H100.chip, H100.outside, 4, 1, 128)
    expected = exchange + sum(ring.seconds(*ringed, backward=back) for back in (False, True))
    assert ring.pass_seconds(T, n, H100, *MODEL, "grid") == pytest.approx(expected, rel=1e-12)


def test_where_nothing_is_sent_all_ways_take_as_long_as_computing():
    alone = ring.computed_seconds(2**14, 1, H100, 32, 128)
    for method in ring.METHODS:
        assert ring.pass_seconds(2**14, 1, H100, *MODEL, method) == pytest.approx(alone)
    assert ring.pass_seconds(2**14, 1, H100, *MODEL, "grid") is None
    slower = ring.pass_seconds(2**14, 1, H100, *MODEL, "ring", merged=0.8)
    assert slower == pytest.approx(alone / 0.8)


def test_heads_that_do_not_divide_are_no_way():
    assert ring.pass_seconds(2**14, 16, H100, *MODEL, "ulysses") is None
    assert ring.pass_seconds(2**14, 16, H100, 32, 1, 128, "grid") is None
    with pytest.raises(ValueError, match="n is 12, must be at most 8 GPUs of a box"):
        ring.pass_seconds(2**4 * 12, 12, H100, *MODEL)
    with pytest.raises(ValueError, match="T is 100, must be a multiple of 2n = 16"):
        ring.pass_seconds(100, 8, H100, *MODEL)
    with pytest.raises(ValueError, match="G is 5, must divide H = 32"):
        ring.pass_seconds(2**14, 8, H100, 32, 5, 128)


def test_what_is_not_kept_is_sent_again_and_a_ring_does_so_anyway():
    T, n = 2**17, 8
    beta, numbers = H100.inside.bandwidth, T // n * 128
    for method, more in {
        "gather": (n - 1) * (2 * 2 * 8 * numbers / beta + H100.inside.latency),
        "ulysses": 2 * (n - 1) / n * (32 + 2 * 8) * numbers / beta + H100.inside.latency,
        "ring": 0.0,
    }.items():
        once, twice = (
            ring.pass_seconds(T, n, H100, *MODEL, method, again=a) for a in (False, True)
        )
        assert twice - once == pytest.approx(more, rel=1e-9, abs=1e-15)


def test_copied_kv_heads_go_to_as_many_ranks_as_there_are_heads():
    how = 2**17, 16, H100, 32
    copied = ring.pass_seconds(*how, 8, 128, "ulysses", copied=True)
    assert copied == ring.pass_seconds(*how, 16, 128, "ulysses")
    assert ring.pass_seconds(2**17, 64, H100, 32, 8, 128, "ulysses", copied=True) is None
    for G in (16, 32):
        assert ring.pass_seconds(*how, G, 128, "ulysses", copied=True) == ring.pass_seconds(
            *how, G, 128, "ulysses"
        )
