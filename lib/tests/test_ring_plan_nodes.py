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


def run(T, n, G, box):
    """A double ring, message by message, where every link and the chip do one thing at a time."""
    (H, K), C, rounds, steps = (32, 128), T // n, n // box.gpus, box.gpus
    block = 4 * H * K * C * C / 2 / (0.6 * box.chip.rate("bf16"))
    bytes_ = {"keys": 4 * C * G * K, "gradients": 8 * C * G * K}
    free = {box.inside: 0.0, box.outside: 0.0}

    def sent(link, what, ready):
        free[link] = max(free[link], ready) + bytes_[what] / link.bandwidth
        return free[link] + link.latency

    now = arrived = 0.0
    for there in range(rounds):
        keys, following = arrived, there < rounds - 1
        arrived = sent(box.outside, "keys", arrived) if following else arrived
        for step in range(steps):
            now = max(now, keys) + (block * (1 + 1 / C) if there == step == 0 else block)
            keys = sent(box.inside, "keys", keys) if step < steps - 1 else keys
    free = dict.fromkeys(free, now)
    arrived, own, summed = sent(box.outside, "keys", now), sent(box.inside, "keys", now), now
    for there in range(1, rounds):
        keys, passed = arrived, 0.0
        arrived = sent(box.outside, "keys", arrived) if there < rounds - 1 else arrived
        for step in range(steps):
            start = max(now, keys)
            now = start + 2.5 * block
            keys = sent(box.inside, "keys", start) if step < steps - 1 else keys
            passed = sent(box.inside, "gradients", max(now, passed))
        summed = sent(box.outside, "gradients", max(summed, passed))
    keys, passed = own, 0.0
    for step in range(1, steps):
        start = max(now, keys)
        now = start + 2.5 * block
        keys = sent(box.inside, "keys", start) if step < steps - 1 else keys
        passed = sent(box.inside, "gradients", max(now, passed))
    return max(now + 2.5 * block * (1 + 1 / C), passed, summed)


@pytest.mark.parametrize("box", ["dgx-h100", "dgx-a100"])
@pytest.mark.parametrize("G", [1, 8, 32])
@pytest.mark.parametrize("n", [16, 24, 64])
def test_a_double_ring_takes_as_long_as_its_messages_one_by_one(n, G, box):
    box = BOXES[box]
    for C in (128, 512, 1024, 2048, 4096, 8192, 2**15):
        formula = ring.pass_seconds(n * C, n, box, 32, G, 128, "double")
        assert 1 <= formula / run(n * C, n, G, box) < (1.08 if C >= 1024 else 1.2), C


def test_a_double_ring_is_hidden_from_an_eighth_of_the_plain_rings_tokens_on():
    n, (H, G, K) = 64, MODEL
    hidden = {"H": H, "G": G, "causal": True, "share": 0.6}
    least = ring.least_block(H100.chip, H100.outside, **hidden) / 8 * 1.2  # backward sends more
    for C, good in ((4 * least, True), (0.7 * least, False)):
        T = int(C) // 2 * 2 * n
        first = 4 * (T // n) * G * K * (1 / H100.outside.bandwidth + 1 / H100.inside.bandwidth)
        first += H100.outside.latency + H100.inside.latency  # backward waits for its first keys
        alone = ring.computed_seconds(T, n, H100, H, K)
        taken = ring.pass_seconds(T, n, H100, *MODEL, "double")
        assert (taken == pytest.approx(alone + first, rel=1e-9)) is good
    assert taken < ring.pass_seconds(T, n, H100, *MODEL) / 4
    assert ring.pass_seconds(2**17, 8, H100, *MODEL, "double") is None
