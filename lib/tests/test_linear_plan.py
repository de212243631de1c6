"""What the forms of linear attention cost: closed forms against matmuls counted one by one."""

import doctest
from importlib import import_module
from itertools import product

import pytest

from weft.plan import linear, roofline
from weft.plan.attention import cuts
from weft.plan.hardware import CHIPS
from weft.plan.linear import RULES
from weft.plan.precision import FORMATS

SIZES = [(1, 1, 1), (7, 3, 5), (12, 4, 4), (13, 5, 2)]  # T, K, V
CHUNKS = [1, 4, 5, 64]
CANDIDATES = [16 << i for i in range(7)]


@pytest.mark.parametrize("name", ["answers", "decoding", "forms", "limits", "ranks"])
def test_examples_in_docstrings(name):
    result = doctest.testmod(import_module(f"weft.plan.linear.{name}"))
    assert result.attempted and not result.failed


def matmul(m, k, n):
    """FLOPs of [m, k] times [k, n]."""
    return 2 * m * k * n


def substituted(C):
    """FLOPs of a triangle's inverse, entry by entry."""
    return sum(2 * (i - j) - 1 for i in range(C) for j in range(i))


def counted(rule, c, K, V, heads):
    """FLOPs of a chunk of c tokens, and the elements that each kernel of it moves: in, out.

    The `heads` share c queries and c keys; the rest each of them has.
    """
    flops = matmul(c, K, c) + matmul(c, c, V)  # scores, and their product with values
    flops += matmul(c, K, V) + matmul(K, c, V)  # the state is asked, and grows
    if rule == "plain":
        asked = 2 * c * K + heads * (c * V + K * V)
        return heads * flops, [(c * K + heads * c * V, heads * K * V), (asked, heads * c * V)]
    flops += matmul(c, K, c) + substituted(c) + matmul(c, c, K + V)  # keys with keys; W and U
    flops += matmul(c, K, V)  # what the state answers already
    solve = (c * K + heads * c * V, heads * (c * K + c * V))
    states = (c * K + heads * (c * K + c * V), heads * (c * V + K * V))
    return heads * flops, [solve, states, (2 * c * K + heads * (c * V + K * V), heads * c * V)]


@pytest.mark.parametrize("C", CHUNKS)
@pytest.mark.parametrize("rule", RULES)
def test_chunks_cost_the_sum_of_their_matmuls(rule, C):
    for (T, K, V), size, heads in product(SIZES, (2, 4), (1, 3)):
        parts = [counted(rule, cut.stop - cut.start, K, V, heads) for cut in cuts(T, C)]
        work = linear.work("chunked", T, K, V, C, size, rule, group=heads)
        assert work.flops == sum(flops for flops, _ in parts)
        assert work.bytes == size * sum(a + b for _, kernels in parts for a, b in kernels)
        alone = linear.work("chunked", T, K, V, C, size, rule, kernels=1, group=heads)
        assert (alone.flops, alone.bytes) == (work.flops, 2 * T * (K + heads * V) * size)
        for form in ("recurrent", "parallel")[: 1 + (rule == "plain")]:
            one, all_heads = (
                linear.work(form, T, K, V, C, size, rule, group=n) for n in (1, heads)
            )
            assert (all_heads.flops, all_heads.bytes) == (heads * one.flops, alone.bytes)


@pytest.mark.parametrize(("T", "K", "V"), SIZES)
def test_the_other_forms_count_tokens_and_scores(T, K, V):
    plain, delta = (linear.work("recurrent", T, K, V, rule=rule) for rule in RULES)
    assert plain.flops == T * (matmul(K, 1, V) + matmul(1, K, V))
    assert delta.flops == plain.flops + T * matmul(1, K, V)
    parallel = linear.work("parallel", T, K, V, C=1)
    assert parallel.flops == sum(
        matmul(1, K, seen) + matmul(1, seen, V) for seen in range(1, T + 1)
    )
    assert plain.bytes == delta.bytes == parallel.bytes == 2 * (2 * T * K + 2 * T * V)
    # In one chunk of all tokens the table is whole, and the state is still asked and filled.
    chunk = linear.work("chunked", T, K, V, C=T)
    assert chunk.flops == linear.work("parallel", T, K, V, C=T).flops + plain.flops
    with pytest.raises(ValueError, match="parallel"):
        linear.work("parallel", T, K, V, rule="delta")


def test_a_program_holds_its_tiles_and_sums():
    K, V, C, tile = 3, 5, 4, 4
    q, k, state = C * K, C * K, K * tile
    scores, outputs = C * C, C * tile
    two, one = (linear.on_chip(K, V, C, 2, kernels, tile) for kernels in (2, 1))
    assert two == (2 * (q + k + state), 4 * (scores + outputs))
    assert one == (two.operands, two.sums + 4 * K * tile)
    assert linear.on_chip(128, 256, 64) == linear.on_chip(256, 128, 64)
    # Whole scores of Mamba-2's chunk fill the registers alone.
    assert linear.on_chip(1, 1, 256).sums > linear.REGISTERS == 4 * 256 * 256


@pytest.mark.parametrize("kernels", [1, 2])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("chip", ["a100-80", "h200", "b200"])
def test_no_chunk_that_fits_is_better_than_the_best(chip, rule, kernels):
    chip = CHIPS[chip]
    for width in (16, 64, 128, 256):
        best = linear.best_chunk(width, width, chip, rule=rule, kernels=kernels)

        def least(C, width=width):
            work = linear.work("chunked", 1 << 14, width, width, C, rule=rule, kernels=kernels)
            return roofline.seconds(work, chip, "bf16")

        def fits(C, width=width):
            operands, sums = linear.on_chip(width, width, C, kernels=kernels)
            return operands <= chip.shared and sums <= linear.REGISTERS

        assert fits(best)
        assert all(least(best) <= least(C) for C in CANDIDATES if fits(C))


def test_a_state_that_fills_the_registers_has_no_chunk():
    with pytest.raises(ValueError, match="K is 1024 and V 64, must be less"):
        linear.best_chunk(1024, 64, CHIPS["h100"], kernels=1)
    assert linear.best_chunk(1024, 64, CHIPS["h100"]) == 128


def test_published_kernels_stay_above_the_least_of_one_kernel_and_beat_that_of_three():
    """FlashInfer's pull requests 3788 and 3866 on an H100: heads of 128, some share a key."""
    for tokens, keys, group, published, below in (
        (8 * 8192, 16, 1, 0.380e-3, True),
        (65536, 2, 4, 0.399e-3, True),
        (32768, 2, 4, 0.239e-3, True),
        (8192, 2, 4, 0.114e-3, False),
    ):
        works = [
            linear.work("chunked", tokens, 128, 128, rule="delta", kernels=n, group=group)
            for n in (2, 1)
        ]
        three, one = (roofline.seconds(keys * work, CHIPS["h100"], "bf16") for work in works)
        assert published > one
        assert (published < three) == below


@pytest.mark.parametrize("kernels", [1, 2])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_the_roofs_cross_where_the_closed_form_says(chip, rule, kernels):
    for K, C in ((64, 64), (128, 64), (256, 32)):
        cross = linear.break_even(K, K, chip, "fp16", C, rule, kernels)

        def ratio(T, K=K, C=C):
            ours = linear.work("chunked", T, K, K, C, rule=rule, kernels=kernels)
            theirs = roofline.attention(T, T, 1, K, 2, "flash", causal=True)
            return roofline.seconds(ours, chip, "fp16") / roofline.seconds(theirs, chip, "fp16")

        before, after = (round(cross / C * share) * C for share in (0.8, 1.25))
        # Where memory is the wall of both, one kernel takes as long as FlashAttention.
        assert ratio(before) > 1 > ratio(after) or (kernels == 1 == ratio(before) > ratio(after))
        assert ratio(round(cross / C) * C) == pytest.approx(1, rel=0.05)


def test_a_state_is_a_cache_of_so_many_tokens():
    for H, K, V, G, size, cache in product((4, 8), (3, 16), (5, 16), (1, 4), (2, 4), (1, 2)):
        tokens = linear.same_as_cache(H, K, V, G, size, cache)
        assert tokens * G * (K + V) * cache == pytest.approx(linear.state_bytes(H, K, V, 1, size))
        moved = linear.same_as_cache(H, K, V, G, size, cache, moved=True)
        assert moved * G * (K + V) * cache == pytest.approx(linear.next_token(H, K, V, size).bytes)
    step = linear.next_token(2, 3, 5, rule="delta").flops
    assert step == 2 * linear.work("recurrent", 1, 3, 5, rule="delta").flops


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_a_ring_sends_the_longest_part_and_a_state_is_so_many_tokens_of_it(n):
    H, K, V = 4, 3, 5
    for T in (n, 5 * n, 5 * n + 1):
        longest = max(len(range(r, T, n)) for r in range(n))
        assert linear.sent_by_ring(n, T, 2, K, V) == (n - 1) * longest * 2 * (K + V) * 2
    for factor in linear.FACTORS:
        each = linear.same_as_ring(H, K, V, G=1, factor=factor)
        ring = linear.sent_by_ring(n, 10**6 * n, 1, K, V) / 10**6
        assert each * ring == pytest.approx(linear.sent(n, 0, 1, H, K, V, factor, "gather"))


@pytest.mark.parametrize("format", ["fp16", "bf16", "fp32"])
def test_a_split_decay_stays_in_range_for_as_many_rows_as_it_says(format):
    most = FORMATS[format].max
    for decay in (0.05, 0.3, 0.84, 0.99):
        rows = linear.most_rows(decay, format)
        assert decay**-rows <= most < decay ** -(rows + 1)
        assert linear.least_decay(rows, format) <= decay < linear.least_decay(rows + 1, format)


@pytest.mark.parametrize("term", [0.1, 0.5, 1.0, 1.16, 3.0])
@pytest.mark.parametrize("format", ["bf16", "fp16", "e5m2"])
def test_a_sum_stalls_where_adding_changes_nothing(format, term):
    one, x = FORMATS[format], 0.0
    term = one.round(term)
    while (more := one.round(x + term)) != x:
        x = more
    assert linear.stalls(format, term) == x


def test_a_sum_that_overflows_does_not_stall():
    with pytest.raises(ValueError, match="term is 100"):
        linear.stalls("fp16", 100.0)
