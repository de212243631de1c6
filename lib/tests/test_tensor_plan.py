"""What tensor parallelism sends, keeps and takes, against counting and published figures."""

from dataclasses import replace
from itertools import product

import pytest

from weft.plan.collectives import seconds
from weft.plan.hardware import CHIPS, LINKS, Link
from weft.plan.memory import activations
from weft.plan.shape import SHAPES
from weft.plan.tensor import (
    OVERLAPS,
    PLAYBOOK,
    busy,
    calls,
    fitted,
    kept,
    kv_share,
    layer_time,
    one_shot,
    one_shot_until,
    ring_of_few,
    sent,
    shares,
    wall,
)

SHAPE = SHAPES["gpt-22b"]
VARIANTS = [(False, False), (True, False), (True, True)]  # sequence parallel, gathered again


def test_a_layer_has_two_sums_in_each_pass_and_sequence_parallelism_their_halves():
    assert [call[1:] for call in calls(4) if call.passing == "forward"] == [
        ("all_reduce", "attention"), ("all_reduce", "mlp"),
    ]  # fmt: skip
    assert calls(1, True, "full") == []
    order = [(op[:-7] if op == "all_gather" else op[7:], half) for _, op, half in calls(2, True)]
    gather, scatter = "all", "scatter"
    assert order == [
        (gather, "attention"), (scatter, "attention"), (gather, "mlp"), (scatter, "mlp"),
        (gather, "mlp"), (scatter, "mlp"), (gather, "attention"), (scatter, "attention"),
    ]  # fmt: skip


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_what_is_sent_is_two_all_reduces_a_pass_however_they_are_made(recompute):
    passes = 3 if recompute == "full" else 2
    for t, size in product((1, 2, 5, 8), (2, 4)):
        shape = replace(SHAPE, seq=40)
        nbytes = 3 * shape.seq * shape.width * size
        want = passes * 2 * 2 * (t - 1) * nbytes / t
        assert sent(shape, 3, t, False, recompute, size) == pytest.approx(want)
        assert sent(shape, 3, t, True, recompute, size) == pytest.approx(want)
        more = sent(shape, 3, t, True, recompute, size, regather=True) - want
        assert more == pytest.approx(2 * (t - 1) * nbytes / t)  # a gather in each half


def test_what_is_kept_is_korthikantis_where_the_input_is_gathered_again():
    unit = SHAPE.seq * 4 * SHAPE.width * SHAPE.layers
    for t in (1, 2, 8):
        scores = 5 * SHAPE.heads * SHAPE.seq / SHAPE.width
        assert kept(SHAPE, 4, t) == pytest.approx(unit * (10 + (24 + scores) / t))
        assert kept(SHAPE, 4, t, True, regather=True) == pytest.approx(unit * (34 + scores) / t)
        assert kept(SHAPE, 4, t, True) == pytest.approx(unit * (30 + scores + 4 * t) / t)
        assert (
            kept(SHAPE, 4, t, True, "full")
            == unit * 2 / t
            == activations(SHAPE, 4, t, sequence_parallel=True, recompute="full")
        )


@pytest.mark.parametrize(("sequence_parallel", "regather"), VARIANTS)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_a_layers_time_is_that_of_its_flops_and_bytes(recompute, sequence_parallel, regather):
    """No latency, t = 1, or a link without end: the closed forms; overlap only takes away."""
    chip, link, t = CHIPS["a100-80"], Link("x", 300e9, 0.0), 8
    how = {"sequence_parallel": sequence_parallel, "recompute": recompute, "regather": regather}
    once = layer_time(SHAPE, 4, t, chip, link, **how)
    forward = 4 * SHAPE.seq * (24 * SHAPE.width**2 + 4 * SHAPE.seq * SHAPE.width)
    scores = 4 * 4 * SHAPE.seq**2 * SHAPE.width
    again = {"none": 0, "selective": scores, "full": forward}[recompute]
    assert once.computing == pytest.approx((3 * forward + again) / t / chip.rate("bf16"))
    assert once.sending == pytest.approx(sent(SHAPE, 4, t, **how) / link.bandwidth)
    assert once.seconds == pytest.approx(once.computing + once.sending)
    ways = [w for w in OVERLAPS if w != "pieces" or sequence_parallel]
    slow = [layer_time(SHAPE, 4, t, chip, link, overlap=w, **how) for w in ways]
    assert all(max(x.computing, x.sending) <= x.seconds <= once.seconds for x in slow)
    assert [x.seconds for x in slow] == sorted((x.seconds for x in slow), reverse=True)
    fast = Link("y", 1e18, 0.0)
    if sequence_parallel:  # then pieces hide all
        last = layer_time(SHAPE, 4, t, chip, fast, overlap="pieces", **how)
        assert last.exposed == pytest.approx(0, abs=1e-9)
    alone = layer_time(SHAPE, 4, 1, chip, link, recompute=recompute)
    assert alone.sending == alone.exposed == 0


def test_pieces_are_as_long_as_a_ring_whose_hops_and_pieces_go_side_by_side():
    """The step by step: a piece, and t - 1 times the longer of a piece and a hop."""
    chip, t = CHIPS["a100-80"], 4
    for bandwidth in (1e9, 300e9, 1e13):
        link = Link("x", bandwidth, 1e-6)
        hop = 1e-6 + SHAPE.seq * SHAPE.width * 2 / t / bandwidth
        D, want = SHAPE.width, 0.0
        for columns in (3 * D, D, 4 * D, 4 * D):
            piece = 2 * SHAPE.seq * D * columns / t / t / chip.rate("bf16")
            want += 2 * (piece + (t - 1) * max(piece, hop))  # in forward, and as much in backward
            want += t * piece  # the weight's gradient
        scores = 3 * 4 * SHAPE.seq**2 * D / t / chip.rate("bf16")
        found = layer_time(SHAPE, 1, t, chip, link, True, overlap="pieces").seconds
        assert found == pytest.approx(want + scores)


def test_at_the_wall_forward_sends_as_long_as_it_computes():
    chip, link = CHIPS["h100"], LINKS["nvlink4"]
    t = wall(8192, chip, link)
    assert t - 1 == pytest.approx(3 * 8192 * link.bandwidth / chip.rate("bf16"))
    assert 24 * 8192**2 / t / chip.rate("bf16") == pytest.approx(
        8 * 8192 * (t - 1) / t / link.bandwidth
    )
    assert wall(8192, chip, link, share=0.5) - 1 == pytest.approx(2 * (t - 1))
    assert wall(8192, chip, link, flops=12 * 8192**2) - 1 == pytest.approx((t - 1) / 2)


def test_shares_are_tensor_splits():
    for count, t in product((1, 4, 7, 50), (1, 2, 3, 5)):
        parts = shares(count, t)
        assert sum(parts) == count and max(parts) - min(parts) <= 1
        assert parts == sorted(parts, reverse=True) and len(parts) == t


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: calls(2, regather=True), "regather is True, must be False without"),
        (lambda: calls(2, True, "some"), "recompute is 'some', must be one of"),
        (lambda: sent(SHAPE, 1, 3, True), "t is 3, must divide seq = 2048"),
        (lambda: wall(8, CHIPS["h100"], LINKS["nvlink4"], share=1.5), "share is 1.5, must be at"),
        (
            lambda: layer_time(SHAPE, 1, 2, CHIPS["h100"], LINKS["nvlink4"], overlap="pieces"),
            "overlap is 'pieces', must be another without",
        ),
    ],
)
def test_what_cannot_be_is_named(call, told):
    with pytest.raises(ValueError, match=told):
        call()


@pytest.mark.parametrize("t", [1, 2, 8, 24])
def test_ranks_are_busy_as_long_as_a_layer_computes(t):
    """Without scores and latency, on a layer of GPT's."""
    chip, link = CHIPS["h100"], Link("no latency", LINKS["nvlink4"].bandwidth, 0.0)
    shape = replace(SHAPE, heads=48, seq=48, width=6144)
    time = layer_time(shape, 1, t, chip, link, share=0.5)
    assert busy(6144, t, chip, link, share=0.5) == pytest.approx(
        time.computing / time.seconds, rel=1e-3
    )
    ahead = wall(6144, chip, link, share=0.5) - 1
    assert busy(6144, 1 + round(1.5 * ahead), chip, link, share=0.5) == pytest.approx(0.5, abs=0.02)


def test_up_to_some_bytes_one_shot_is_faster_than_two():
    link = LINKS["nvlink4"]
    for t in (3, 4, 8):
        most = one_shot_until(t, link)
        for times, faster in ((0.9, True), (1.1, False)):
            two = seconds("all_reduce", times * most, t, link, "direct")
            assert (one_shot(times * most, t, link) < two) == faster
    assert one_shot_until(2, link) == float("inf")
    for t, times in product((4, 8), (0, 0.03, 0.3, 1)):  # of 3 ranks a ring is faster with few
        nbytes = times * one_shot_until(t, link)
        assert one_shot(nbytes, t, link) < ring_of_few(nbytes, t, link)
    assert one_shot(1e6, 1, link) == 0
    assert one_shot(1e6, 2, link) < seconds("all_reduce", 1e6, 2, link, "direct")


def test_kv_heads_lie_on_ranks_so_that_every_rank_has_one():
    for G in range(1, 10):
        for t in range(1, 20):
            held, copies = kv_share(G, t)
            assert held * t >= G and held == max(shares(G, t)[0], 1) if t <= G else held == 1
            assert copies == (1 if t <= G else -(-t // G))


def test_the_playbooks_ranks_slow_down_as_counted_across_nodes():
    assert [row.t for row in PLAYBOOK] == [2, 4, 8, 16, 32]
    for row in PLAYBOOK[3:]:
        assert row.counted == pytest.approx(row.measured[1], rel=0.05)  # sequence parallel
    for row in PLAYBOOK[1:3]:
        assert row.counted < min(row.measured)  # too pessimistic in a node, as the page says


def test_a_fit_meets_the_row_that_it_is_made_of_and_loses_with_t():
    for row in PLAYBOOK[1:]:
        assert fitted(2, row) == pytest.approx(1)
        assert fitted(row.t, row) == pytest.approx(row.measured[0])
        assert fitted(2 * row.t, row) < row.measured[0]
    alone = fitted(16, PLAYBOOK[2])  # half of the drop, or less, is t - 1
    slower = [1 / x for x in (PLAYBOOK[2].measured[0], alone, PLAYBOOK[3].measured[0])]
    assert 0.3 < (slower[1] - slower[0]) / (slower[2] - slower[0]) < 0.5


def test_few_bytes_go_round_a_ring_in_short_hops_at_half_the_bandwidth():
    link = LINKS["nvlink4"]
    for t in (2, 8):
        hop, full = 0.6e-6, Link("x", link.bandwidth / 2, 0.0)
        for nbytes in (0, 2**14, 2**20):
            want = 2 * (t - 1) * hop + seconds("all_reduce", nbytes, t, full)
            assert ring_of_few(nbytes, t, link) == pytest.approx(want)
    assert ring_of_few(2**14, 1, link) == 0
    simple, few = seconds("all_reduce", 2**26, 8, link), ring_of_few(2**26, 8, link)
    assert simple < few  # as NCCL, not for many bytes
