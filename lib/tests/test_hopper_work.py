"""Pieces of attention and the blocks that take them: all dealt, evenly, the longest first."""

from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import inside, parse, told, words

from weft.draw.hopper.tile_scheduler import loads_svg
from weft.plan.hopper import tile_scheduler as plan

SHAPES = st.tuples(
    st.integers(1, 700), st.integers(1, 700), st.integers(1, 7), st.integers(1, 4),
    st.sampled_from([64, 128, 192]), st.sampled_from([32, 64, 128]), st.booleans(),
)  # fmt: skip


def sees(query, key, T, S, causal):
    return not causal or key <= query + S - T


@given(SHAPES, st.integers(1, 20))
def test_every_piece_is_dealt_once_and_nobody_works_long_alone(shape, blocks):
    T, S, heads, together, rows, keys, causal = shape
    for rule, tiles in ((plan.by_queries, -(-T // rows)), (plan.by_keys, -(-S // keys))):
        order, costs = rule(T, S, rows, keys, causal)
        hands = plan.in_groups(heads, together, order, costs, blocks)
        assert len(hands) == blocks
        assert sorted(piece for hand in hands for piece in hand) == list(range(heads * tiles))
        worked = plan.loads(hands, costs)
        assert max(worked) <= sum(worked) / blocks + max(costs)  # Graham's bound, and a bit more
        assert max(worked) - min(worked) <= max(costs)


@given(SHAPES)
def test_costs_are_the_tiles_that_somebody_sees(shape):
    T, S, _, _, rows, keys, causal = shape
    _, costs = plan.by_queries(T, S, rows, keys, causal)
    assert len(costs) == -(-T // rows)
    for tile, cost in enumerate(costs):
        last = min((tile + 1) * rows, T) - 1
        seen = [k for k in range(0, S, keys) if sees(last, k, T, S, causal)]
        # Rows behind the end count as if they were there, and a piece has one tile at least.
        behind = causal and (tile + 1) * rows > T
        tiles = cost - plan.START
        assert tiles >= len(seen) if behind else tiles == max(len(seen), 1)


def test_pieces_that_are_alike_go_round_in_turn():
    pieces = plan.order(5, 2, range(9))
    assert plan.deal(pieces, [3] * 9, 7) == plan.in_turn(pieces, 7)
    nearly = plan.deal(pieces, [3 + 1e-9 * (tile == 4) for tile in range(9)], 7)
    assert sorted(map(len, nearly)) == [6, 6, 6, 6, 7, 7, 7]
    assert plan.in_groups(3, 1, *plan.by_queries(640, 640, 128, 64, False), 4) == plan.in_turn(
        plan.order(3, 1, range(4, -1, -1)), 4
    )


def test_in_turn_a_few_blocks_get_a_long_piece_in_every_round():
    """One of them works longest; the chapter's case, on an H100."""
    tiles, costs = plan.by_queries(16384, 16384, 128, 128, True)
    hands = plan.in_turn(plan.order(16, 1, tiles), 132)
    long = median(costs)
    always = [i for i, hand in enumerate(hands) if all(costs[p % 128] > long for p in hand)]
    worked = plan.loads(hands, costs)
    assert 0 < len(always) <= 8 and worked.index(max(worked)) in always
    dealt = plan.in_groups(16, 1, tiles, costs, 132)
    assert max(plan.loads(dealt, costs)) < max(worked) / 1.4


@pytest.mark.parametrize("blocks", [1, 3, 132])
def test_within_a_group_of_heads_the_longest_begin(blocks):
    T, heads, together = 1024, 6, 4
    tiles, costs = plan.by_queries(T, T, 128, 128, True)
    assert costs == tuple(plan.START + tile for tile in range(1, 9))
    hands = plan.in_groups(heads, together, tiles, costs, blocks)
    for hand in hands:
        for before, after in pairwise(hand):
            group = [piece // len(costs) // together for piece in (before, after)]
            assert group[0] <= group[1]
            if group[0] == group[1]:
                assert costs[before % len(costs)] >= costs[after % len(costs)]
    keys = plan.in_groups(1, 1, *plan.by_keys(T, T, 64, 128, True), 8)
    assert keys == [[tile] for tile in range(8)]  # the first keys are seen by most


@pytest.mark.parametrize(
    ("width", "rows", "keys", "turn"),
    [(64, 192, 128, 1.05), (128, 128, 128, 1.1), (256, 128, 64, 1.3)],
)
def test_dealing_saves_what_taking_turns_wastes(width, rows, keys, turn):
    T, heads = 16_384, 2048 // width
    tiles, costs = plan.by_queries(T, T, rows, keys, True)
    pieces = plan.order(heads, 2, tiles)
    assert plan.stretch(plan.in_turn(pieces, 132), costs) > turn
    assert 1 <= plan.stretch(plan.deal(pieces, costs, 132), costs) < 1.03
    assert 1 <= plan.stretch(plan.in_groups(heads, 2, tiles, costs, 132), costs) < 1.03


@given(SHAPES, st.integers(1, 20))
def test_a_kernel_finds_each_block_its_pieces_in_the_table(shape, blocks):
    T, S, heads, together, rows, keys, causal = shape
    hands = plan.in_groups(heads, together, *plan.by_queries(T, S, rows, keys, causal), blocks)
    numbers = plan.table(hands)
    for block, hand in enumerate(hands):
        assert numbers[block] == len(hand)
        assert [numbers[(1 + n) * blocks + block] for n in range(len(hand))] == hand
    assert len(numbers) == blocks * (1 + max(map(len, hands)))


@pytest.mark.parametrize("heads", [16, 24, 100])
def test_groups_that_are_dealt_alike_are_as_even_as_one_deal(heads):
    """Nobody is ahead by more than within one group, however many there are."""
    tiles, costs = plan.by_queries(16_384, 16_384, 128, 128, True)
    grouped = plan.in_groups(heads, 4, tiles, costs, 132)
    one = plan.in_groups(4, 4, tiles, costs, 132)

    def spread(hands):
        worked = plan.loads(hands, costs)
        return max(worked) - min(worked)

    assert spread(grouped) <= spread(one)
    at_once = plan.stretch(plan.deal(plan.order(heads, 4, tiles), costs, 132), costs)
    assert plan.stretch(grouped, costs) <= at_once


def test_the_picture_says_what_it_shows():
    root = inside(parse(loads_svg(2048, 4, 2, 128, 64, 9)))
    tiles, costs = plan.by_queries(2048, 2048, 128, 64, True)
    for hands in (
        plan.in_turn(plan.order(4, 2, tiles), 9),
        plan.in_groups(4, 2, tiles, costs, 9),
    ):
        share = f"{plan.stretch(hands, costs) - 1:.1%}"
        assert share in told(root) and any(share in line for line in words(root))


@pytest.mark.parametrize("blocks", [0, -1, 2.5])
def test_a_number_of_blocks_that_cannot_be(blocks):
    with pytest.raises(ValueError, match=rf"blocks is {blocks}"):
        plan.deal([0], [1], blocks)
