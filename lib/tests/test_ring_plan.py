"""A sequence over ranks: pairs counted one by one, closed forms, and the paper's tables."""

import doctest
import random
from importlib import import_module
from itertools import accumulate, pairwise, product

import pytest

from weft.plan import ring
from weft.plan.hardware import CHIPS, LINKS, Link
from weft.plan.ring import LAYOUTS, METHODS, PEAKS, TABLE_2, TABLE_3
from weft.plan.ring.decoding import merge_hops
from weft.plan.ring.hops import backward_hops, forward_hops, stops
from weft.plan.ring.visible import Visibility, rectangles
from weft.plan.shape import SHAPES

H100 = CHIPS["h100"]
SIZES = [(1, 1), (2, 2), (5, 5), (7, 3), (12, 2), (13, 4), (16, 4), (17, 3), (30, 5)]
SEES = [
    Visibility(causal=False),
    Visibility(),
    Visibility(window=1),
    Visibility(window=4),
    Visibility(documents=(0, 3, 4)),
    Visibility(causal=False, documents=(0, 1)),
    Visibility(window=3, documents=(0, 6)),
]


@pytest.mark.parametrize(
    "name",
    ["alive", "balance", "budget", "decoding", "hops", "layouts", "memory", "price", "visible"],
)
def test_examples_in_docstrings(name):
    result = doctest.testmod(import_module(f"weft.plan.ring.{name}"))
    assert result.attempted and not result.failed


def ending_at(see, T):
    """The same with documents that end at T."""
    if see.documents is None:
        return see
    starts = tuple(start for start in see.documents if start < T)
    return Visibility(see.causal, see.window, (*starts, T))


def visible(see, i, j):
    """Whether query i sees key j."""
    documents = see.documents or (0,)
    same = [max(s for s in documents if s <= x) for x in (i, j)]
    late = see.causal and j > i
    return same[0] == same[1] and not late and (see.window is None or i - j < see.window)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_token_is_on_one_rank_and_ranks_are_even(layout):
    for T, n in SIZES:
        held = ring.positions(T, n, layout)
        assert sorted(sum(held, ())) == list(range(T))
        assert all(list(tokens) == sorted(tokens) and tokens for tokens in held)
        assert max(map(len, held)) - min(map(len, held)) <= 1
        assert ring.lengths(T, n, layout) == [len(tokens) for tokens in held]


def test_zigzag_folds_the_strip():
    for rank, tokens in enumerate(ring.positions(24, 3, "zigzag")):
        assert tokens == (*range(4 * rank, 4 * rank + 4), *range(20 - 4 * rank, 24 - 4 * rank))


@pytest.mark.parametrize(("layout", "see"), [*product(LAYOUTS, SEES)])
def test_work_counts_pairs_one_by_one_and_rectangles_hold_each_pair_once(layout, see):
    for T, n in SIZES:
        seen = ending_at(see, T)
        held, spans = ring.positions(T, n, layout), ring.held(T, n, layout)
        rows = ring.work(T, n, layout, seen.causal, seen.window, seen.documents)
        for rank, step in product(range(n), range(n)):
            home = (rank - step) % n
            q, k = held[rank], held[home]
            wanted = {(a, b) for a in range(len(q)) for b in range(len(k))
                      if visible(seen, q[a], k[b])}  # fmt: skip
            assert rows[rank][step] == len(wanted)
            found = list(of_rectangles(rectangles(spans[rank], spans[home], seen)))
            assert sorted(found) == sorted(wanted)


def of_rectangles(some):
    """Every pair that is said to be computed."""
    for piece in some:
        rows, cols = (range(s.start, s.stop) for s in (piece.rows, piece.cols))
        assert rows and cols and (piece.kind != "causal" or len(rows) == len(cols))
        for a, b in product(range(len(rows)), range(len(cols))):
            causal = b <= a
            band = piece.low <= b - a < piece.high
            if {"all": True, "causal": causal, "band": band}[piece.kind]:
                yield rows[a], cols[b]


def test_without_a_window_there_are_few_rectangles_and_no_masks():
    T, n, see = 64, 4, Visibility()
    for layout in LAYOUTS:
        parts = ring.held(T, n, layout)
        for q, k in product(parts, parts):
            found = rectangles(q, k, see)
            assert len(found) <= 1 and all(piece.kind != "band" for piece in found)
            if layout == "zigzag" and q is not k:
                assert [piece.kind for piece in found] == ["all"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_closed_forms_of_the_balance_are_what_is_counted(n):
    for layout, c in product(LAYOUTS, (2, 4, 10)):
        counted = ring.efficiency(n * c, n, layout)
        assert counted == pytest.approx(ring.even_efficiency(n * c, n, layout), abs=1e-12)
        assert ring.efficiency(n * c, n, layout, causal=False) == 1
    assert ring.efficiency(8 * n, n, "contiguous") == pytest.approx((n + 1) / (2 * n))
    c = 64
    assert ring.longest_path(c * n, n, "contiguous") == c * (c + 1) // 2 + (n - 1) * c * c
    assert ring.longest_path(c * n, n, "zigzag") == c * (c + 1) // 2 + (n - 1) * c * c // 2


def test_packed_documents_are_not_balanced_by_zigzag():
    how = {"documents": (0, 8, 12, 16)}
    paths = [ring.longest_path(16, 2, layout, **how) for layout in ("contiguous", "zigzag")]
    assert paths[0] == 36 and sum(map(sum, ring.work(16, 2, "zigzag", **how))) == 56
    rows = ring.work(16, 2, "zigzag", **how)
    assert max(map(sum, rows)) == 36


def busy(layout, lengths, n):
    """The share of a pass of packed documents in which ranks compute, by scores."""
    T, documents = sum(lengths), (0, *accumulate(lengths))
    pairs = sum(map(sum, ring.work(T, n, layout, documents=documents)))
    return pairs / n / ring.longest_path(T, n, layout, documents=documents)


def test_a_fold_of_many_short_documents_is_on_average_no_better_than_none():
    dice, gains = random.Random(0), []
    for n, _ in product((4, 8), range(30)):
        cuts = sorted(dice.sample(range(1, 512), 40))
        lengths = [b - a for a, b in pairwise((0, *cuts, 512))]
        gains.append(busy("zigzag", lengths, n) / busy("contiguous", lengths, n))
    assert sum(gains) / len(gains) < 1


def test_stripes_are_even_in_documents_that_are_long_against_the_ranks():
    for n in (4, 8):
        for lengths in ([64 * n], [64 * n, 32 * n, 32 * n], [128 * n, 96 * n]):
            assert busy("striped", lengths, n) > 0.95


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_ring_gathers_keys_and_scatters_gradients(layout):
    H, G, K = 6, 3, 5
    for T, n in SIZES:
        lengths, each = ring.lengths(T, n, layout), 2 * G * K
        visits = stops(T, n, layout, Visibility())
        for rank in range(n):
            how = {"layout": layout, "rank": rank}
            right = lengths[(rank + 1) % n]
            hops = [hop for phase in backward_hops(visits) for hop in phase if hop.source == rank]
            carried = [sum(lengths[h.chunk] for h in hops if h.reduce == b) for b in (False, True)]
            assert carried == [T - right, T - lengths[rank]]
            there = ring.sent(T, n, H, G, K, size=2, **how)
            assert there == (T - right) * each * 2
            back = ring.sent(T, n, H, G, K, size=2, backward=True, **how)
            assert back == there + (T - lengths[rank]) * each * 4
            assert ring.sent(T, n, H, G, K, "gather", **how) == there
            gradients = ring.sent(T, n, H, G, K, "gather", 8, backward=True, **how)
            assert gradients == (T - lengths[rank]) * each * 8
        most = max(ring.sent(T, n, H, G, K, layout=layout, rank=rank) for rank in range(n))
        assert ring.sent(T, n, H, G, K, layout=layout) == most


def test_ulysses_sends_less_than_a_ring_of_more_ranks_than_heads_share_a_kv_head():
    T, H, G, K = 2**12, 32, 16, 64
    for n in (2, 4, 8, 16):
        a_ring, ulysses = (ring.sent(T, n, H, G, K, method) for method in ("ring", "ulysses"))
        assert a_ring * (H + G) == ulysses * n * G
        assert (ulysses < a_ring) == (n > 1 + H / G)
        assert ring.sent(T, n, H, G, K, "ulysses", backward=True) == ulysses


def test_a_window_silences_most_of_the_ring():
    T, n = 64, 8
    assert stops(T, n, "contiguous", Visibility(window=9))[2:4] == [[2, 3], [3, 4]]
    assert stops(T, n, "zigzag", Visibility(window=5))[3] == [3, 4, 2]  # both neighbours
    whole = ring.sent(T, n, 2, 2, 4, layout="contiguous")
    assert ring.sent(T, n, 2, 2, 4, layout="contiguous", window=9) == whole // 7
    own = [(0, 16), (0, 32)]
    assert stops(32, 2, "contiguous", Visibility(documents=(*own[0], 32))) == [[0], [1]]


def test_hops_bring_each_block_where_it_is_seen_and_each_gradient_home():
    for visits in ([[0]], [[0, 1, 2], [1, 2, 0], [2, 0, 1]], [[0, 1], [1, 2, 0], [2]]):
        forward, backward = forward_hops(visits), backward_hops(visits)
        here = {(rank, rank) for rank in range(len(visits))}
        for phase in forward:
            assert all((hop.source, hop.chunk) in here for hop in phase)
            here |= {(hop.target, hop.chunk) for hop in phase}
        assert here == {(rank, block) for block, ranks in enumerate(visits) for rank in ranks}
        for block, ranks in enumerate(visits):
            home = [hop for phase in backward for hop in phase if hop.reduce and hop.chunk == block]
            assert [hop.source for hop in home] == ranks[1:]
            assert [hop.target for hop in home][-1:] == ([block] if ranks[1:] else [])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 11])
def test_parts_of_a_token_meet_each_once_and_the_bytes_are_those_of_the_rounds(n):
    have = {rank: {rank} for rank in range(n)}
    sends = [0] * n
    for phase in merge_hops(n):
        before = {rank: set(parts) for rank, parts in have.items()}
        for hop in phase:
            assert not hop.reduce or not before[hop.source] & before[hop.target]
            have[hop.target] |= before[hop.source]
            sends[hop.source] += 1
    assert all(parts == set(range(n)) for parts in have.values())
    assert [ring.sent_in_decode(n, 1, 1, size=1, rank=r) for r in range(n)] == [
        2 * s for s in sends
    ]
    assert ring.sent_in_decode(n, 1, 1, size=1) == 2 * max(sends)


def test_table_2_of_the_paper():
    for row in TABLE_2:
        block, sequence = (tokens / 1000 for tokens in row.counted)
        assert block == pytest.approx(row.block, rel=0.05)
        assert sequence == pytest.approx(row.sequence, rel=0.01)


def test_heads_a_mask_and_latency_change_the_least_block():
    block, ndr = ring.least_block, LINKS["ib-ndr"]
    assert block(H100, ndr, H=32, G=8) == pytest.approx(block(H100, ndr) / 4, abs=1)
    assert block(H100, ndr, causal=True) == pytest.approx(2 * block(H100, ndr), abs=1)
    assert block(H100, ndr, H=32, G=32, K=128) > block(H100, ndr)
    assert block(CHIPS["v100"], ndr) == 2500
    for c in (block(H100, ndr, H=8, G=2, K=64), block(H100, ndr, H=8, G=2)):
        hop = c * 2 * 2 * 64 * 2 / ndr.bandwidth
        assert 4 * c * c * 8 * 64 / H100.rate("bf16") == pytest.approx(hop, rel=0.4)


def test_table_3_is_never_more_than_the_formulas_give():
    for row in TABLE_3:
        assert all(ours >= theirs for ours, theirs in zip(row.counted, row.printed, strict=True))
        vanilla, memory_efficient, blockwise, ring_ = row.counted
        assert vanilla <= memory_efficient <= blockwise
        assert ring_ in (blockwise * row.devices, blockwise * row.devices // 2)
    assert ring.longest(ring.MODELS["7B"], CHIPS["a100-80"], 32, "ring") == 2**22
    with pytest.raises(ValueError, match="devices is 1, must be more: a v100"):
        ring.longest(ring.MODELS["7B"], CHIPS["v100"], 1)
    assert list(PEAKS) == ["vanilla", "memory_efficient", "blockwise", "ring"]


def test_seconds_are_computing_or_sending_whichever_is_longer():
    how, see = (H100, LINKS["nvlink4"], 32, 8, 128), Visibility()
    for T, n, backward in product((2**12, 2**18), (2, 8), (False, True)):
        both = {"backward": backward}
        ideal = 4 * T * (T + 1) / 2 / n * 32 * 128 / H100.rate("bf16") / 0.6
        ideal *= 2.5 if backward else 1
        for method in METHODS:
            wire = ring.sent(T, n, 32, 8, 128, method, **both) / how[1].bandwidth
            found = ring.seconds(T, n, *how, method, **both)
            assert max(ideal, wire) * 0.999 <= found
            assert found <= ideal + wire + 3 * n * how[1].latency + ideal * 0.001
    slow = Link("slow", 1.0, 0.0)  # where sending is all that counts, the phases are the hops
    for n, backward in product((2, 3, 5), (False, True)):
        hops = (backward_hops if backward else forward_hops)(stops(4 * n, n, "zigzag", see))
        kept = [[2 * 2 * 4 * (4 if h.reduce else 2) * 4 for h in p if h.source == 0] for p in hops]
        found = ring.seconds(4 * n, n, H100, slow, 2, 2, 4, backward=backward)
        assert found == pytest.approx(sum(map(sum, kept)), rel=1e-6)
    assert ring.seconds(2**18, 8, *how) < 1.01 * 4 * 2**35 / 8 * 32 * 128 / H100.rate("bf16") / 0.6
    assert ring.seconds(64, 1, *how) == ring.seconds(64, 1, *how, "gather")


def test_best_is_the_ring_where_its_blocks_hide_the_sending():
    ndr = LINKS["ib-ndr"]
    few, many = (ring.best(T, 8, H100, ndr, 32, 8, 128) for T in (2**12, 2**20))
    assert (few[0], many[0]) == ("ulysses", "ring") and set(few[1]) == set(METHODS)
    assert set(ring.best(2**12, 16, H100, ndr, 32, 8, 128)[1]) == {"ring", "gather"}


WRONG = {
    "n is 5, must be at most T = 4: a token for each rank": lambda: ring.positions(4, 5, "zigzag"),
    "layout is 'folded', must be one of": lambda: ring.work(8, 2, "folded"),
    "method is 'tree', must be one of": lambda: ring.sent(8, 2, 2, 2, 4, "tree"),
    "G is 2 kv heads, must be a multiple of n = 4": lambda: ring.sent(8, 4, 4, 2, 4, "ulysses"),
    "G is 3, must divide H = 4": lambda: ring.sent(8, 2, 4, 3, 4),
    "window is 2, must be None unless": lambda: ring.work(8, 2, "zigzag", causal=False, window=2),
    "documents end at 7, must end at T": lambda: ring.work(8, 2, "zigzag", documents=[0, 7]),
    r"documents is \[0, 4, 4\], must": lambda: ring.work(8, 2, "zigzag", documents=[0, 4, 4]),
    "T is 9, must be a multiple of 4": lambda: ring.even_efficiency(9, 2, "zigzag"),
    "method is 'best', must be one of": lambda: ring.longest(
        ring.MODELS["7B"], H100, 8, method="best"
    ),
}


@pytest.mark.parametrize("says", WRONG)
def test_wrong_arguments_are_named(says):
    with pytest.raises(ValueError, match=says):
        WRONG[says]()


@pytest.mark.parametrize("chunk", [None, 2048])
@pytest.mark.parametrize("n", [1, 2, 8])
def test_a_budget_counts_each_tensor_of_a_llama_once(n, chunk):
    D, F, L, H, G, K = 4096, 14336, 32, 32, 8, 128
    C = 2**17 // n
    found = ring.budget(SHAPES["llama3-8b"], 2**17, n, 16, chunk=chunk)
    assert found.kept == C * L * (2 * D + 2 * H * K + 4 * H)
    masks = 2 * D  # of dropout, which a Llama has none of: counted as the plan counts all layers
    inside = 2 * (D + H * K + 2 * G * K + 2 * D + 3 * F) + masks  # norm 1, q, k, v, norm 2, MLP
    assert found.layer == C * (inside + 2 * 3 * F)  # its gradients, more than attention's
    assert found.loss == C * 2 * 2 * D + 8 * 128256 * min(C, chunk or C)
    assert found.states == SHAPES["llama3-8b"].params
    assert found.total == sum(found) - min(found.layer, found.loss)


def test_a_budget_says_which_groups_hold_a_sequence():
    how = SHAPES["llama3-8b"], 2**17
    fits = {n for n in (1, 2, 4, 8) if ring.budget(*how, n, 16, chunk=2048).total < H100.memory}
    assert fits == {2, 4, 8}
    assert ring.budget(*how, 2, 16).total > H100.memory  # logits of all its tokens at once
    again = ring.budget(*how, 1, 16, chunk=2048, attention_kept=False)
    assert again.total < H100.memory
    gathered = ring.budget(*how, 8, 16, "gather", chunk=2048)
    assert gathered.layer > ring.budget(*how, 8, 16, "ring", chunk=2048).layer
    with pytest.raises(ValueError, match="devices is 16, must be a multiple of n = 3"):
        ring.budget(*how, 3, 16)
    with pytest.raises(ValueError, match="chunk is 0"):
        ring.budget(*how, 8, 16, chunk=0)
