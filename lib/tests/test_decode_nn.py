"""Generation with a cache in blocks gives what it gives without any: several sequences at once,
forks that share until one writes, evictions, and a cache that is too small."""

from functools import partial

import pytest
import torch

from weft.nn.decode import (
    Decoder,
    DecoderConfig,
    PagedCache,
    generate,
    greedy,
    prefill,
    step,
)
from weft.plan.decode.blocks import CacheFull
from weft.plan.decode.serving import Request, serve

EXACT = {"rtol": 1e-12, "atol": 1e-12}
VOCAB = 23


def decoder(seed=0, **sizes):
    torch.manual_seed(seed)
    standard = {"layers": 3, "width": 24, "heads": 6, "kv_heads": 2, "vocab": VOCAB, "seq": 40}
    return Decoder(DecoderConfig(**standard | sizes)).double()


@pytest.fixture(scope="module")
def model():
    return decoder()


def line(length, seed=0):
    dice = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB, (length,), generator=dice).tolist()


def whole(model, tokens):
    """Scores without a cache, [T, N]."""
    return model(torch.tensor([tokens]))[0].detach()


def alone(model, prompt, count):
    """The same tokens by running all from the start each time."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(greedy(whole(model, tokens)[-1]))
    return tokens[len(prompt) :]


def test_slots_of_a_kv_head_lie_as_far_apart_as_all_heads_are_wide(model):
    """NHD, as the chapter says: what one head reads at a stretch is one token."""
    for cache in PagedCache(model, count=5, block=4).k, PagedCache(model, count=5, block=4).v:
        layer, G, K = cache[0], 2, 4
        assert layer.shape == (5, 4, G, K) and layer.stride()[1:] == (G * K, K, 1)


@pytest.mark.parametrize("kv_heads", [1, 2, 6, None])
@pytest.mark.parametrize("block", [1, 4, 16])
def test_prefill_and_steps_give_what_one_run_gives(kv_heads, block):
    model = decoder(kv_heads=kv_heads)
    tokens, cache = line(19), PagedCache(model, count=20, block=block)
    assert cache.k.shape == (3, 20, block, kv_heads or 6, 4)
    exact = whole(model, tokens)
    cache.add("a", 11)
    torch.testing.assert_close(prefill(model, cache, "a", tokens[:11]), exact[:11], **EXACT)
    for i in range(11, 19):
        cache.extend("a")
        torch.testing.assert_close(step(model, cache, ["a"], [tokens[i]])[0], exact[i], **EXACT)


def test_a_prompt_may_come_in_parts(model):
    tokens, cache = line(17), PagedCache(model, count=6, block=4)
    cache.add("a")
    for first, last in ((0, 5), (5, 6), (6, 17)):
        cache.extend("a", last - first)
        scores = prefill(model, cache, "a", tokens[first:last])
        torch.testing.assert_close(scores, whole(model, tokens)[first:last], **EXACT)


def test_sequences_of_different_lengths_run_as_one_batch(model):
    lines = {name: line(length, length) for name, length in (("a", 3), ("b", 14), ("c", 8))}
    cache = PagedCache(model, count=12, block=4)
    for name, tokens in lines.items():
        cache.add(name, len(tokens) - 2)
        prefill(model, cache, name, tokens[:-2])
    for last in (-2, -1):
        for name in lines:
            cache.extend(name)
        scores = step(model, cache, list(lines), [tokens[last] for tokens in lines.values()])
        for got, tokens in zip(scores, lines.values(), strict=True):
            torch.testing.assert_close(got, whole(model, tokens)[last], **EXACT)


def test_forks_share_their_beginning_and_write_apart(model):
    prompt, cache = line(10), PagedCache(model, count=6, block=4)
    cache.add("a", 10)
    prefill(model, cache, "a", prompt)
    cache.k[:, 3:], cache.v[:, 3:] = float("nan"), float("nan")  # nobody's yet
    cache.fork("a", "b")
    cache.fork("b", "c")
    assert cache.books.free == 3  # nothing has been copied
    tails = {"a": line(2, 1), "b": line(2, 2), "c": line(2, 3)}
    for i in range(2):
        for name in tails:
            cache.extend(name)
        scores = step(model, cache, list(tails), [tail[i] for tail in tails.values()])
        for got, tail in zip(scores, tails.values(), strict=True):
            exact = whole(model, prompt + tail[: i + 1])[-1]
            torch.testing.assert_close(got, exact, **EXACT)
    assert cache.books.free == 1 and cache.books.saved == 4  # each has its own last block


PROMPTS = [line(length, seed=length) for length in (9, 3, 12, 5, 7)]
COUNTS = [8, 14, 5, 9, 12]


@pytest.fixture(scope="module")
def expected(model):
    return [alone(model, *each) for each in zip(PROMPTS, COUNTS, strict=True)]


@pytest.mark.parametrize(
    ("count", "block", "evictions"),
    [(40, 2, False), (12, 4, True), (5, 4, True), (18, 1, True), (2, 16, False)],
)
def test_generation_is_the_same_however_small_the_cache(model, expected, count, block, evictions):
    turns = []
    cache = PagedCache(model, count, block)
    assert generate(model, cache, PROMPTS, COUNTS, watch=turns.append) == expected
    assert cache.books.free == count and not cache.books.sequences
    assert any(turn.evicted for turn in turns) == evictions


@pytest.mark.parametrize(("count", "block"), [(40, 2), (12, 4), (5, 4), (18, 1)])
def test_the_simulation_runs_the_same_turns(model, count, block):
    turns = []
    generate(model, PagedCache(model, count, block), PROMPTS, COUNTS, watch=turns.append)
    asked = [Request(len(p), n) for p, n in zip(PROMPTS, COUNTS, strict=True)]
    served = serve(asked, count * block, "paged", block)
    assert len(turns) == served.steps
    for at, (turn, moment) in enumerate(zip(turns, served.moments, strict=True)):
        assert len(turn.grown) + len(turn.admitted) == moment.running
        begun = sorted(life.sequence for life in served.lives if life.begin == at)
        ended = [life.sequence for life in served.lives if life.end == at and not life.finished]
        assert (sorted(turn.admitted), sorted(turn.evicted)) == (begun, sorted(ended))


def test_one_number_of_tokens_for_all_and_another_way_to_choose(model):
    def second(scores):
        return int(scores.topk(2).indices[1])

    cache = PagedCache(model, 30, 4)
    got = generate(model, cache, PROMPTS[:2], 4, choose=second)
    for prompt, made in zip(PROMPTS[:2], got, strict=True):
        tokens = list(prompt)
        for token in made:
            assert token == second(whole(model, tokens)[-1])
            tokens.append(token)
        assert len(made) == 4


def test_attention_is_passed_in(model):
    from weft.ref.decode import paged_attention

    seen = []

    def paged(q, k_cache, v_cache, block_table, lengths):
        seen.append((q.shape, k_cache.shape, lengths.tolist()))
        return paged_attention(q, k_cache, v_cache, block_table, lengths)

    cache = PagedCache(model, 9, 4)
    generate(model, cache, PROMPTS[:2], 3, step=partial(step, paged=paged))
    sizes = [
        (torch.Size([2, 1, 6, 4]), torch.Size([9, 4, 2, 4]), [n, m]) for n, m in ((10, 4), (11, 5))
    ]
    assert seen == [x for x in sizes for _ in range(3)]


def test_a_kernel_can_be_passed_in():
    from weft.kernels.decode import paged_attention

    model, kernel = decoder().float(), partial(step, paged=paged_attention)
    expected = generate(model, PagedCache(model, 9, 4), PROMPTS[:2], 3)
    assert generate(model, PagedCache(model, 9, 4), PROMPTS[:2], 3, step=kernel) == expected


def test_a_sequence_that_does_not_fit_even_alone_is_told_so(model):
    cache = PagedCache(model, count=4, block=4)
    with pytest.raises(
        CacheFull, match="sequence 0 needs 5 more blocks of 4 for 17 tokens, and 4 of 4"
    ):
        generate(model, cache, [line(12)], 9)
    with pytest.raises(CacheFull, match="sequence 'a' needs 5 more blocks"):
        cache.add("a", 17)


@pytest.mark.parametrize(
    ("prompts", "count", "complaint"),
    [
        ([[1], []], 3, r"prompts\[1\] is empty"),
        ([[1]], 0, r"count is 0 for prompts\[0\]"),
        ([[1], [2]], [3], "count has 1 numbers"),
        ([[1] * 30], 12, r"prompts\[0\] has 30 tokens and is to get 12, must stay within seq = 40"),
    ],
)
def test_what_cannot_be_generated_is_said(model, prompts, count, complaint):
    with pytest.raises(ValueError, match=complaint):
        generate(model, PagedCache(model, 30, 4), prompts, count)


def test_the_last_position_can_be_used(model):
    cache = PagedCache(model, 30, 4)
    assert generate(model, cache, [line(30)], 11) == [alone(model, line(30), 11)]


def test_kv_heads_divide_the_heads():
    with pytest.raises(ValueError, match="kv_heads is 4, must divide heads = 6"):
        DecoderConfig(width=24, heads=6, kv_heads=4)
    with pytest.raises(ValueError, match="kv_heads is 0, must be a whole number of at least 1"):
        DecoderConfig(width=24, heads=6, kv_heads=0)
