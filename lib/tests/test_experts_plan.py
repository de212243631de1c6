"""What an expert takes, drops and is sent, against counting."""

from fractions import Fraction
from itertools import combinations, product
from math import comb, exp, log

import pytest
import torch

from weft.plan.experts import (
    SWITCHES,
    VERSIONS,
    balance_loss,
    balance_slopes,
    capacity,
    distinct_ranks,
    drop_share,
    dropped,
    expert_states,
    flops_per_byte,
    least_tokens,
    loads,
    mlp_cost,
    near_drop_share,
    sent,
    sent_merged,
    touched,
    wasted_rows,
)


def test_a_capacity_is_the_least_whole_number_that_is_enough():
    for tokens, experts, tenths, k in product((0, 1, 7, 100), (2, 3, 10), (5, 10, 11, 20), (1, 2)):
        most = capacity(tokens, experts, tenths / 10, k)
        wanted = Fraction(k * tokens * tenths, 10 * experts)
        assert most - 1 < wanted <= most


def test_what_is_dropped_is_what_is_left_over():
    assert dropped([], 3) == dropped([3, 3], 3) == 0 and dropped([4, 0, 9], 3) == 7
    assert dropped((2, 5), 0) == 7


def test_what_a_rank_sends_is_what_leaves_it_and_what_it_answers():
    """Rank 0 of e, a token to each expert in turn: whatever is not its own goes out or back."""
    for e, k in product((1, 2, 5), (1, 3)):
        to = [choice % e for choice in range(k * 4 * e)]  # even: each rank's tokens like these
        out = sum(1 for rank in to if rank != 0)
        back = sum(1 for source in range(1, e) for rank in to if rank == 0)
        assert sent(tokens=4 * e, width=3, e=e, k=k, size=2) == (out + back) * 3 * 2
    assert sent(tokens=1, width=1, e=3, size=1) == pytest.approx(4 / 3)


def test_what_a_uniform_router_drops_is_the_mean_over_all_loads():
    for T, E, k, tenths in product((1, 7, 40), (2, 5), (1, 2), (3, 10, 12, 30)):
        p, most = Fraction(k, E), capacity(T, E, tenths / 10, k)
        chance = [comb(T, x) * p**x * (1 - p) ** (T - x) for x in range(T + 1)]
        wanted = E * sum(max(0, x - most) * c for x, c in enumerate(chance)) / (k * T)
        assert drop_share(T, E, tenths / 10, k) == pytest.approx(float(wanted), abs=1e-14)
    assert drop_share(0, 4, 1.0) == 0


@pytest.mark.parametrize("k", [1, 3])
def test_drops_that_are_drawn_come_close_to_the_formula_and_its_root(k):
    T, E = 2000, 16
    drawn = [dropped(loads(T, E, k, seed=seed), capacity(T, E, 1.0, k)) for seed in range(12)]
    found = sum(drawn) / (12 * k * T)
    assert found == pytest.approx(drop_share(T, E, 1.0, k), rel=0.15)
    assert near_drop_share(T, E, k) == pytest.approx(drop_share(T, E, 1.0, k), rel=0.01)


def test_a_skewed_router_prefers_the_first_and_draws_no_expert_twice():
    counts = loads(3000, 4, k=1, skew=1.0)
    assert sum(counts) == 3000
    odds = [1 / (i + 1) for i in range(4)]
    for count, one in zip(counts, odds, strict=True):
        assert count / 3000 == pytest.approx(one / sum(odds), rel=0.1)
    assert loads(50, 3, k=3, skew=2.0) == (50, 50, 50)
    assert max(loads(50, 4, k=2, skew=9.0)) <= 50


def test_distinct_ranks_are_counted_over_all_choices():
    for E, k, e in ((6, 2, 3), (8, 3, 4), (4, 4, 2), (5, 1, 5)):
        ranks = [len({x * e // E for x in chosen}) for chosen in combinations(range(E), k)]
        assert distinct_ranks(E, k, e) == pytest.approx(sum(ranks) / len(ranks))
    assert distinct_ranks(8, 1, 8) == 1
    assert sent_merged(64, 5, 8, 8, k=1) == sent(64, 5, 8, k=1)


def test_touched_experts_and_wasted_rows_are_counted():
    found = [sum(map(bool, loads(20, 12, 2, seed=s))) for s in range(200)]
    assert touched(20, 12, 2) == pytest.approx(sum(found) / 200, rel=0.01)
    assert touched(0, 4, 4) == 0 and touched(1, 4, 4) == 4
    assert wasted_rows([], 8) == 0 and wasted_rows([1, 8, 9], 8) == 7 + 0 + 7
    counts = loads(8192, 128, 8)
    assert wasted_rows(counts, 128) == pytest.approx(128 * 128 / 2, rel=0.1)
    assert least_tokens(5, 2, 3) == 8


def test_states_divide_by_who_holds_them():
    assert expert_states(1e9, 1) == 16e9
    assert expert_states(1e9, 8, replicas=4, t=2) == (4 + 12 / 4) * 1e9 / 16
    assert flops_per_byte(100, matrices=2) == 100


def steps(version, T, D, F, E, k, C):
    """What each step of a version reads and writes, as tensors without memory."""
    x, up, down = made((T, D), (E, D, F), (E, F, D))
    rows = E * C if version == "padded" else T * k
    hidden, out, choices = made((rows, F), (rows, D), (T * k, D))
    if version == "fused":  # rows of x are gathered, as often as they are chosen
        return [(choices, up, hidden), (hidden, down, out), (choices, x)]
    copy = [(out, out)], [(choices, choices)]
    between = [(out, up, hidden), (hidden, hidden), (hidden, down, out)]
    return [*copy[0], *between, *copy[1], (choices, x)]


def made(*shapes):
    return (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_moves_what_its_steps_read_and_write(version):
    T, D, F, E, k, C = 7, 5, 3, 4, 2, 6
    cost = mlp_cost(version, T, D, F, E, k, C)
    found = steps(version, T, D, F, E, k, C)
    assert cost.bytes == sum(one.nbytes for step in found for one in step)
    assert cost.flops == 2 * cost.rows * D * F * 2
    assert cost.rows == (24 if version == "padded" else 14)
    assert (cost.launches, cost.waits) == ((8, True) if version == "looped" else (2, False))
    assert mlp_cost(version, 0, D, F, E, k).bytes == 2 * 2 * E * D * F
    assert mlp_cost(version, T, D, F, E, k, C, size=4).bytes == 2 * cost.bytes


def test_versions_before_the_last_move_two_copies_and_a_relu_more():
    fused, permuted, padded = (
        mlp_cost(one, 8, 5, 3, 4, 2, capacity=4).bytes for one in ("fused", "permuted", "padded")
    )
    assert permuted - fused == 2 * (2 * 16 * 5 + 2 * 16 * 5 + 2 * 16 * 3)
    assert padded == permuted  # 4 * 4 places for 2 * 8 choices


def softmax(row):
    total = sum(map(exp, row))
    return [exp(x) / total for x in row]


def test_the_slopes_of_the_balance_loss_are_its_differences():
    logits = [[0.3, 0.1, -0.4], [1.0, 0.2, 0.5], [0.0, 0.9, 0.1], [0.7, -1.0, 0.2]]
    slopes, step = balance_slopes([softmax(row) for row in logits]), 1e-6
    for t, j in product(range(4), range(3)):
        two = []
        for sign in (1, -1):
            moved = [list(row) for row in logits]
            moved[t][j] += sign * step
            two.append(balance_loss([softmax(row) for row in moved]))
        assert slopes[t][j] == pytest.approx((two[0] - two[1]) / (2 * step), abs=1e-8)


def test_an_even_load_has_no_slope_whatever_the_probabilities():
    for a in (0.51, 0.7, 0.99):
        rows = [[a, 1 - a]] + [[0.4, 0.6]]
        assert all(abs(x) < 1e-15 for one in balance_slopes(rows) for x in one)
        assert balance_loss(rows) == pytest.approx(1)
    assert softmax([log(3), 0])[0] == pytest.approx(0.75)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_printed_switch_has_the_counted_parameters(name):
    """All but one: 395 billion are 128 experts in a layer, not the 64 of the table."""
    model = SWITCHES[name]
    count = model.params(128 if name == "Switch-XXL" else None)
    assert count == pytest.approx(model.printed, rel=0.12)
    assert model.params(1) <= model.params(model.experts)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: capacity(-1, 2, 1.0), "tokens is -1"),
        (lambda: capacity(8, 2, 0), "factor is 0, must be a number above 0"),
        (lambda: capacity(8, 2, float("nan")), "factor is nan"),
        (lambda: capacity(8, 2, 1.0, k=3), "k is 3, must be at most experts = 2"),
        (lambda: dropped([1, -1], 3), "counts is -1"),
        (lambda: sent(8, 4, 0), "e is 0"),
        (lambda: drop_share(8, 2, 1.0, k=3), "k is 3, must be at most experts = 2"),
        (lambda: near_drop_share(8, 2, k=3), "k is 3, must be at most experts = 2"),
        (lambda: loads(8, 2, k=3), "k is 3, must be at most experts = 2"),
        (lambda: loads(8, 2, skew=-1.0), "skew is -1.0"),
        (lambda: distinct_ranks(8, 2, 3), "e is 3, must divide experts = 8"),
        (lambda: touched(8, 2, k=3), "k is 3, must be at most experts = 2"),
        (lambda: mlp_cost("sorted", 8, 4, 4, 2), "version is 'sorted'"),
        (lambda: mlp_cost("fused", 8, 4, 4, 2, k=3), "k is 3, must be at most experts = 2"),
        (lambda: least_tokens(2, 3, 4), "k is 3, must be at most experts = 2"),
        (lambda: balance_loss([[0.5, 0.5], [1.0]]), "probabilities has rows of 2 and 1 experts"),
        (lambda: balance_slopes([[1.5]]), "probabilities has 1.5, must be at most 1"),
    ],
)
def test_a_wrong_size_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
