"""Hybrid sharding and ZeRO++ in plan: what is sent, kept, and goes through the ports of a node."""

import pytest

from weft.plan.collectives.steps import rails_all_reduce
from weft.plan.memory.states import model_states
from weft.plan.zero.hybrid import crossing, fsdp2
from weft.plan.zero.stages import sent

PARAMS, SHARDS = 24_000, 8


def in_16_bits(**how):
    """Elements that a rank sends, in units of the model without the factor of a ring."""
    found = fsdp2(PARAMS, SHARDS, param=2, reduce=2, **how)
    return found.sent / (2 * PARAMS * (SHARDS - 1) / SHARDS)


def test_without_replicas_it_is_stage_3():
    for m in (1, 4):
        found = fsdp2(PARAMS, SHARDS, microbatches=m, param=2, reduce=2)
        assert found.sent == sum(sent(3, [PARAMS], SHARDS, 0, microbatches=m).values())
        assert found.states == model_states(PARAMS, SHARDS, 3).total
        assert found.whole == 0


@pytest.mark.parametrize("m", [1, 2, 8])
def test_switches_lead_from_stage_3_to_stage_1(m):
    """3m, 2m + 1, m + 1 and 2 times the parameters, for more and more that is kept whole."""
    steps = [
        {},
        {"gradient_sync": False},
        {"gradient_sync": False, "reshard_after_forward": False},
        {"gradient_sync": False, "reshard_after_forward": False, "reshard_after_backward": False},
    ]
    found = [in_16_bits(microbatches=m, **how) for how in steps]
    assert found == pytest.approx([3 * m, 2 * m + 1, m + 1, 2])
    whole = [fsdp2(PARAMS, SHARDS, microbatches=m, reduce=4, **how).whole for how in steps]
    gradients = 4 * PARAMS if m > 1 else 0
    assert whole == [0, gradients, 2 * PARAMS + gradients, 2 * PARAMS + gradients]


def test_a_smaller_group_between_forward_and_backward():
    found = fsdp2(PARAMS, SHARDS, reshard_after_forward=2, param=2, reduce=2)
    assert found.whole == 2 * PARAMS / 2
    assert found.gathered == 2 * PARAMS * (7 / 8 + 1 / 2)


def test_replicas_add_an_all_reduce_of_a_shard():
    one, many = fsdp2(PARAMS, SHARDS), fsdp2(PARAMS, SHARDS, replicas=3, microbatches=2)
    assert many.states == one.states == 16 * PARAMS / SHARDS
    assert many.replicated == 2 * 2 * (2 / 3) * 4 * PARAMS / SHARDS
    once = fsdp2(PARAMS, SHARDS, replicas=3, microbatches=2, all_reduce=False)
    assert once.replicated == many.replicated / 2
    assert once.kept == many.kept == once.states  # the sum is the gradient, and kept once
    whole = fsdp2(PARAMS, SHARDS, microbatches=2, gradient_sync=False)
    assert whole.kept == whole.states + 4 * PARAMS


@pytest.mark.parametrize(("nodes", "node"), [(2, 4), (3, 2), (4, 1)])
def test_a_port_carries_what_rings_through_all_ranks_cross(nodes, node):
    """Of an all-reduce by a ring for each port, chunk by chunk; ours has three halves of one."""
    n = nodes * node
    steps = rails_all_reduce(nodes, node)
    leaves = [
        sum(send.source // node == k != send.target // node for step in steps for send in step)
        for k in range(nodes)
    ]
    chunk = 2 * PARAMS / n / node
    halves = [count * chunk / node / 2 for count in leaves]
    assert halves == pytest.approx([crossing(PARAMS, nodes, node) / 3] * nodes)


def test_zero_plus_plus_divides_by_four():
    """Wang et al. 2023, section 3: from 3 times the parameters to 0.75."""
    every = {"qwz": True, "hpz": True, "qgz": True}
    unit = 2 * PARAMS / 8
    parts = [crossing(PARAMS, 10**6, **{name: True}) / unit for name in every]
    assert parts == pytest.approx([2, 2, 2.25], rel=1e-5)
    assert crossing(PARAMS, 10**6) / unit == pytest.approx(3, rel=1e-5)
    assert crossing(PARAMS, 10**6, **every) / unit == pytest.approx(0.75, rel=1e-5)
    assert crossing(PARAMS, 4, microbatches=5) == 5 * crossing(PARAMS, 4)
    assert crossing(PARAMS, 1) == crossing(PARAMS, 1, **every) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fsdp2(0, 2), "params is 0"),
        (lambda: fsdp2(9, 0), "shards is 0"),
        (lambda: fsdp2(9, 2, 0), "replicas is 0"),
        (lambda: fsdp2(9, 2, microbatches=0), "microbatches is 0"),
        (lambda: fsdp2(9, 2, reduce=0), "reduce is 0"),
        (lambda: fsdp2(9, 8, reshard_after_forward=3), "reshard_after_forward is 3, must be True"),
        (lambda: fsdp2(9, 8, reshard_after_forward=8), "a divisor of 8 between 1 and it"),
        (lambda: fsdp2(9, 8, reshard_after_forward=1), "reshard_after_forward is 1"),
        (lambda: fsdp2(9, 8, reshard_after_forward="no"), "reshard_after_forward is 'no'"),
        (lambda: crossing(9, 0), "nodes is 0"),
        (lambda: crossing(9, 2, node=0), "node is 0"),
        (lambda: crossing(9, 2, microbatches=0), "microbatches is 0"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
