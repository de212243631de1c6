"""Pairs and blocks against a count, one pair after the other."""

from itertools import product
from random import Random

import pytest

from weft.plan import sparse
from weft.plan.hardware import CHIPS
from weft.plan.sparse import blocks, pairs, reach

GRID = list(product((1, 2, 7, 12), (0, 1, 3, 20), (1, 2, 5), (0, 1, 2, 7), (False, True)))


def seen(T, window, dilation, globals, causal):
    near = {x * dilation for x in range(-window, window + 1)}
    return {
        (i, j)
        for i, j in product(range(T), repeat=2)
        if (i - j in near or min(i, j) < globals) and (j <= i or not causal)
    }


def test_pairs_are_those_that_are_seen():
    for T, window, dilation, globals, causal in GRID:
        if globals <= T:
            given = (T, window, dilation, globals, causal)
            assert pairs(*given) == len(seen(*given)), given


@pytest.mark.parametrize("block", [1, 3, 4, 50])
def test_a_block_is_listed_where_a_pair_of_it_is_seen(block):
    for T, window, dilation, globals, causal in GRID:
        if globals <= T:
            rest = (window, dilation, globals, causal)
            want = {(i // block, j // block) for i, j in seen(T, *rest)}
            assert blocks(T, block, *rest) == want, (T, rest)


def test_reach_is_how_far_a_chain_of_windows_goes():
    for layers, window, dilation in product((0, 1, 3), (0, 1, 2), (1, 3)):
        T = 2 * reach(layers, window, dilation) + 3
        heard = {T // 2}
        near = seen(T, window, dilation, 0, False)
        for _ in range(layers):
            heard = {j for i, j in near if i in heard}
        assert T // 2 - min(heard) == max(heard) - T // 2 == reach(layers, window, dilation)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 1), "T is 0"),
        ((8, -1), "window is -1"),
        ((8, 1, 0), "dilation is 0"),
        ((8, 1, 1, 9), "globals is 9, must be at most T = 8"),
    ],
)
def test_a_wrong_size_is_named(arguments, said):
    with pytest.raises(ValueError, match=said):
        pairs(*arguments)
    with pytest.raises(ValueError, match=said):
        blocks(arguments[0], 4, *arguments[1:])


@pytest.mark.parametrize("block", [1, 3, 4, 50])
def test_blocks_are_counted_without_listing_them(block):
    for T, window, dilation, globals, causal in GRID:
        if globals <= T:
            rest = (window, dilation, globals, causal)
            count = len(blocks(T, block, *rest))
            assert sparse.touched(T, block, *rest) == count, (T, rest)
            computed = count * block**2
            assert sparse.waste(T, block, *rest) == computed / pairs(T, *rest)


def test_a_long_window_wastes_one_block_in_each_row():
    for keys, block, want in ((128, 128, 2.0), (128, 64, 1.5), (1024, 128, 1.125)):
        found = sparse.waste(1 << 17, block, keys - 1, causal=True)
        assert found == pytest.approx(want, rel=0.01)
        assert found > 1


def test_a_window_is_faster_from_the_break_even_on():
    for block, window, ratio in product((16, 128), (0, 1, 127, 128, 1023), (1, 1.3, 2, 6)):
        T = sparse.break_even(block, window, ratio)
        assert T % block == 0
        assert sparse.time_share(T, block, window, ratio) < 1
        assert sparse.time_share(T + block, block, window, ratio) < 1
        if block < T:
            assert sparse.time_share(T - block, block, window, ratio) >= 1
    with pytest.raises(ValueError, match=r"ratio is .*, must be at least 1"):
        sparse.break_even(128, 1023, 0.5)


def test_a_narrow_window_waits_for_memory():
    least = sparse.least_keys(CHIPS["h100"], H=64, G=8)
    ridge = CHIPS["h100"].rate("bf16") / CHIPS["h100"].bandwidth
    per_token = [4 * keys * 64 * 64 / (2 * (64 + 64 + 8 + 8) * 64) for keys in (least - 1, least)]
    assert per_token[0] < ridge <= per_token[1]
    assert sparse.window_intensity(least, 64, 8) == per_token[1]


def test_what_layers_in_turn_keep_is_counted():
    for T, keys, local, full in product((1, 7, 20), (1, 5, 30), (0, 1, 5), (0, 1, 2)):
        if not local + full:
            continue
        cached = local * min(T, keys) + full * T
        assert sparse.cache_share(T, keys, local, full) == cached / ((local + full) * T)
        seen = sum(local * min(t, keys) + full * t for t in range(1, T + 1))
        most = (local + full) * sum(range(1, T + 1))
        assert sparse.pair_share(T, keys, local, full) == pytest.approx(seen / most)
    with pytest.raises(ValueError, match="local and full are 0"):
        sparse.cache_share(8, 4, 0, 0)


def test_influence_spreads_as_paths_do():
    for layers in ([(2, 1)] * 3, [(1, 1), (1, 2), (1, 4)], [(1, 2)] * 4, [(0, 1)]):
        found = sparse.spread(layers)
        paths = [
            sum(steps) for steps in product(*([i * d for i in range(w + 1)] for w, d in layers))
        ]
        assert {at: paths.count(at) / len(paths) for at in paths} == pytest.approx(found)
        assert max(found) == sum(reach(1, w, d) for w, d in layers)
    assert set(sparse.spread([(1, 1), (1, 2), (1, 4)])) == set(range(8))
    assert all(at % 2 == 0 for at in sparse.spread([(3, 2)] * 5))


def test_dsa_is_counted_query_by_query():
    for T in (1, 5, 8, 30):
        work = sparse.dsa_work(T, chosen=8)
        assert work.indexer == sum(64 * 128 * t for t in range(1, T + 1))
        assert work.attention == sum(128 * (576 + 512) * min(t, 8) for t in range(1, T + 1))
        assert sparse.mla_work(T) == sum(128 * (192 + 128) * t for t in range(1, T + 1))
    each = sparse.INDEXER_PER_TOKEN
    for chosen, rate, own in product((1, 8, 2048), (1, 2, 3.5, 1e9), (0, 7, each)):
        T = sparse.dsa_crossing(chosen, rate, own)
        for length, less in ((T, True), (T - 1, False)):
            if length:
                indexer, attention = sparse.dsa_work(length, chosen)
                work = indexer / rate + attention + own * length
                assert (work < sparse.mla_work(length)) is less


def test_a_step_of_decoding_reads_all_index_keys_and_the_chosen_rows():
    rows = {"bf16": 576 * 2, "fp8": 512 + 4 * 4 + 64 * 2}
    assert rows == sparse.ROW_BYTES
    for T, (row, size) in product((1, 2048, 9000), rows.items()):
        read = sum(132 for _ in range(T)) + size * min(T, 2048)
        assert sparse.dsa_saving(T, row) == pytest.approx(T * size / read)
    with pytest.raises(ValueError, match="row is 'fp4'"):
        sparse.dsa_saving(1, "fp4")


def test_neighbours_that_choose_alone_touch_most_keys():
    dice, keys, chosen, queries, tries = Random(0), 200, 10, 12, 300
    seen = sum(
        len(set().union(*(dice.sample(range(keys), chosen) for _ in range(queries))))
        for _ in range(tries)
    )
    assert sparse.union(keys, chosen, queries) == pytest.approx(seen / tries / keys, abs=0.01)


def test_nobody_attends_to_more_than_there_is():
    for method, t in product(sparse.READS, (1, 100, 5000, 1 << 20)):
        scored, attended = sparse.read(method, t)
        assert 0 < attended <= t
        assert 0 <= scored <= t
    with pytest.raises(ValueError, match="method is 'x'"):
        sparse.read("x", 8)


def test_at_most_three_blocks_of_a_windows_row_need_a_mask():
    """Two if the block divides w or w - 1, or is longer than w."""
    for w, block in product(range(1, 30), (1, 2, 4, 7)):
        most = 0
        for row in range(3 * -(-w // block)):
            queries = range(row * block, row * block + block)
            first, last = max(0, queries[0] - w + 1) // block, row
            masked = 0
            for column in range(first, last + 1):
                keys = range(column * block, column * block + block)
                masked += not all(0 <= i - j < w for i in queries for j in keys)
            most = max(most, masked)
        two = w % block == 0 or (w - 1) % block == 0 or w < block
        assert most <= (2 if two else 3), (w, block)
        assert two or w < 2 * block or most == 3, (w, block)
