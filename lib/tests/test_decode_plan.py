"""The bytes of a KV cache for models that there are; its books: no block in two hands, nothing
lost, nobody's tokens changed; and the scheduler's simulation, whose memory is leased without
overlap and adds up in every step."""

from collections import Counter
from dataclasses import replace
from math import ceil
from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from weft.plan.decode.batching import POLICIES, batched
from weft.plan.decode.blocks import Blocks, CacheFull, Event
from weft.plan.decode.cache import (
    bytes_per_token,
    intensity,
    latent_intensity,
    mean_waste,
    sequences,
    splits,
    step,
    waste,
)
from weft.plan.decode.scheduler import Scheduler
from weft.plan.decode.server import SERVED, Server, expected_tokens, expert_bytes, speculation
from weft.plan.decode.serving import MEMORIES, Request, requests, serve
from weft.plan.decode.sharing import beam_search, parallel
from weft.plan.hardware import CHIPS
from weft.plan.roofline import ridge as roofline_ridge
from weft.plan.roofline import work as roofline
from weft.plan.shape.model import SHAPES, ModelShape

# --- bytes and intensity --------------------------------------------------------------------------

PER_TOKEN = {  # of 2 L G K elements of two bytes
    "llama2-7b": 524288,
    "llama2-70b": 327680,
    "llama3-8b": 131072,
    "opt-13b": 819200,
    "gpt3-175b": 4718592,
    "bloom-176b": 4014080,
}


@pytest.mark.parametrize(("name", "nbytes"), PER_TOKEN.items())
def test_the_cache_of_models_that_there_are(name, nbytes):
    assert bytes_per_token(SHAPES[name]) == nbytes
    assert bytes_per_token(SHAPES[name], size=1) == nbytes // 2


def test_what_the_papers_say_of_the_cache():
    llama = SHAPES["llama2-70b"]
    assert bytes_per_token(replace(llama, kv_heads=None)) == 2560 * 1024  # if all had their own
    # "the KV cache of one token demands 800 KB", and 1.6 GB for a request: Kwon et al. 2023, 3
    assert 2048 * bytes_per_token(SHAPES["opt-13b"]) == pytest.approx(1.6e9, rel=0.05)


def test_the_cache_grows_with_layers_heads_of_its_own_and_width_and_with_nothing_else():
    shape = ModelShape(layers=6, width=40, heads=8, vocab=100, seq=50, kv_heads=4)
    base = bytes_per_token(shape, size=4)
    assert base == 2 * 6 * 4 * 5 * 4
    for change in ({"layers": 12}, {"kv_heads": 8}, {"width": 80}):
        assert bytes_per_token(replace(shape, **change), size=4) == 2 * base
    for change in ({"vocab": 7}, {"seq": 7}, {"hidden": 7}, {"gated": True}):
        assert bytes_per_token(replace(shape, **change), size=4) == base


def test_how_many_sequences_fit():
    shape = SHAPES["llama3-8b"]
    assert sequences(shape, tokens=1000, memory=131072 * 1000 * 3) == 3
    assert sequences(shape, tokens=1000, memory=131072 * 1000 * 3 - 1) == 2
    assert sequences(shape, tokens=1, memory=0) == 0


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize(("H", "G"), [(6, 6), (6, 3), (6, 1), (64, 8)])
def test_the_intensity_is_what_the_roofline_tends_to(H, G, T, size):
    limit = intensity(H, G, size, T)
    works = [roofline.attention(T, S, H, 80, size, "flash", G=G) for S in (10, 1000, 10**6)]
    at = [work.intensity for work in works]
    assert at == sorted(at) and at[2] == pytest.approx(limit, rel=1e-4) and at[2] < limit


@pytest.mark.parametrize(
    ("H", "K", "V", "T"), [(128, 576, 512, 1), (16, 576, 512, 2), (6, 5, 5, 3)]
)
def test_the_intensity_of_a_latent_counts_its_bytes_once(H, K, V, T):
    S = 10**6
    flops = 2 * T * H * S * (K + V)  # two matmuls
    moved = 2 * (S * K + T * H * (K + V))  # the latent once, queries and outputs
    assert latent_intensity(H, K, V, T=T) == pytest.approx(flops / moved, rel=1e-3)
    assert latent_intensity(H, K, V, size=1, T=T) == 2 * latent_intensity(H, K, V, T=T)
    # "the compute-memory ratio is h_q s_q (d_k + d_v) / d_k": FlashMLA's new-kernel-deep-dive
    assert latent_intensity(H, K, V, T=T) == pytest.approx(H * T * (K + V) / K)


def test_which_attention_is_bound_by_compute_in_decoding():
    """What the chapter says of the chips: one token over kv heads never, a latent on three."""
    dtypes = {"v100": "fp16"}
    ridges = {c: roofline_ridge(CHIPS[c], dtypes.get(c, "bf16")) for c in CHIPS}
    assert all(intensity(64, G) < ridge for G in (64, 8, 1) for ridge in ridges.values())
    latent = latent_intensity(128, 576, 512)
    assert {c for c in ridges if latent > ridges[c]} == {"v100", "a100-80", "a100-40", "h200"}
    # a second token, as DeepSeek-V3 guesses one, brings it over all of them
    assert latent_intensity(128, 576, 512, T=2) > max(ridges.values())
    # FlashMLA at the H800's clock under load: 865 TFLOP/s over 3.35 TB/s, reached with 128 heads
    assert latent == pytest.approx(865 / 3.35, rel=0.07)
    # a prefix that many sequences read together
    assert intensity(64, 8, T=32) < ridges["h100"] < intensity(64, 8, T=64)


def test_a_step_of_guessed_tokens_reads_no_more_cache():
    shape = SHAPES["llama3-8b"]
    one, four = step(shape, 2, 1000), step(shape, 2, 1000, T=4)
    assert four.flops == 4 * one.flops and one.bytes < four.bytes < 1.01 * one.bytes
    assert step(shape, 2, 1000, T=1) == one


def test_a_step_reads_the_weights_once_and_every_cache():
    shape = SHAPES["llama3-8b"]
    weights = shape.params - shape.vocab * shape.width - 65 * shape.width  # looked up; and norms
    one, two = step(shape, 1, 1000), step(shape, 2, 1000)
    assert two.flops == 2 * one.flops
    assert one.flops == 2 * weights + 4 * 1000 * shape.layers * shape.width
    cache = 1001 * bytes_per_token(shape)
    # what is left are the activations, a few vectors of each matrix
    assert 2 * weights + cache < one.bytes < 1.001 * (2 * weights + cache)
    assert 2 * weights + 2 * cache < two.bytes < 1.001 * (2 * weights + 2 * cache)
    # the batch that no cache limits is bound by arithmetic in the end, the other never
    assert step(shape, 4096, 1).intensity > 300
    long = [step(shape, batch, 32768).intensity for batch in (64, 256, 1024)]
    limit = one.flops / (1000 * bytes_per_token(shape))
    assert long == sorted(long) and long[2] < 1.1 * long[1] < limit


@given(tokens=st.integers(0, 200), block=st.integers(1, 40))
def test_waste_is_less_than_a_block(tokens, block):
    pool = Blocks(count=200, block=block)
    pool.add("a", tokens)
    assert pool.wasted == waste(tokens, block) < block


@pytest.mark.parametrize("block", [1, 2, 5, 16, 128])
def test_mean_waste_is_the_mean(block):
    assert mean(waste(tokens, block) for tokens in range(1, 3 * block + 1)) == mean_waste(block)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: bytes_per_token(SHAPES["opt-13b"], size=0), "size is 0"),
        (lambda: sequences(SHAPES["opt-13b"], 0, 100), "tokens is 0"),
        (lambda: sequences(SHAPES["opt-13b"], 1, -1), "memory is -1"),
        (lambda: intensity(6, 4), "G is 4, must divide H = 6"),
        (lambda: intensity(0, 1), "H is 0"),
        (lambda: intensity(6, 3, T=0), "T is 0"),
        (lambda: latent_intensity(8, 64, 65), "V is 65, must be at most K = 64"),
        (lambda: latent_intensity(8, 0, 0), "K is 0"),
        (lambda: step(SHAPES["opt-13b"], 1, 5, T=6), "T is 6, must be at most context = 5"),
        (lambda: step(SHAPES["opt-13b"], 0, 5), "batch is 0"),
        (lambda: step(SHAPES["opt-13b"], 1, 0), "context is 0"),
        (lambda: splits(0, 5, 8), "programs is 0"),
        (lambda: splits(1, -5, 8), "tokens is -5"),
        (lambda: splits(1, 5, 0), "slots is 0"),
        (lambda: waste(-1, 4), "tokens is -1"),
        (lambda: waste(3, 0), "block is 0"),
        (lambda: mean_waste(0.5), "block is 0.5, must be a whole number"),
    ],
)
def test_sizes_that_cannot_be(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


# --- how many pieces ------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [8, 216, 264])
@pytest.mark.parametrize("tokens", [0, 1, 300, 4096, 32768, 10**6])
def test_pieces_fill_the_chip_without_being_small(tokens, slots):
    for programs in (1, 3, 8, 100, 264, 300, 5000):
        pieces = splits(programs, tokens, slots, tile=64)
        assert 1 <= pieces <= 128
        assert pieces == 1 or tokens / pieces >= 4 * 64 or pieces <= tokens / 4096 + 1
        assert tokens / pieces <= 4096 or pieces == 128
        waves = -(-programs * pieces // slots)
        if tokens >= 128 * 4 * 64 and slots / 64 < programs < slots:
            assert programs * pieces / (waves * slots) > 0.85


# --- blocks ---------------------------------------------------------------------------------------


def state(pool: Blocks):
    """All that can be asked of a pool."""
    held = tuple(pool.holders(block) for block in range(pool.count))
    tables = {s: (pool.length(s), pool.table(s)) for s in pool.sequences}
    return held, tables, pool.free, pool.filled, pool.wasted, pool.saved


class Tokens(RuleBasedStateMachine):
    """Sequences that write real tokens where a pool says, beside lists that cannot be wrong.

    The slots are filled by following the events, as a cache of tensors would. What stands in
    them, read through the tables, has to equal the lists after every step.
    """

    names = Bundle("names")

    @initialize(count=st.integers(1, 12), block=st.integers(1, 5))
    def begin(self, count, block):
        self.pool, self.slots, self.lists = Blocks(count, block), {}, {}
        self.made, self.moved = 0, Counter()

    def follow(self, events):
        for kind, _, block, source, tokens in events:
            self.moved[kind] += 1
            if kind == "copy":
                for i in range(tokens):
                    self.slots[block, i] = self.slots[source, i]

    def write(self, name, tokens):
        before = state(self.pool)
        try:
            add = name not in self.lists
            self.follow((self.pool.add if add else self.pool.extend)(name, tokens))
        except CacheFull as error:
            assert error.needed > error.free == self.pool.free
            assert state(self.pool) == before
            return False
        line = self.lists.setdefault(name, [])
        for _ in range(tokens):
            self.made += 1
            line.append(self.made)
            self.slots[self.pool.place(name, len(line) - 1)] = self.made
        return True

    @rule(target=names, tokens=st.integers(0, 14))
    def add(self, tokens):
        self.made += 1
        name = f"s{self.made}"
        return name if self.write(name, tokens) else multiple()

    @rule(name=names, tokens=st.integers(0, 7))
    def extend(self, name, tokens):
        self.write(name, tokens)

    @rule(target=names, name=names)
    def fork(self, name):
        self.made += 1
        child = f"s{self.made}"
        free = self.pool.free
        self.follow(self.pool.fork(name, child))
        assert self.pool.free == free
        self.lists[child] = list(self.lists[name])
        return child

    @rule(name=consumes(names))
    def drop(self, name):
        self.follow(self.pool.drop(name))
        del self.lists[name]

    @invariant()
    def every_sequence_reads_its_own_tokens(self):
        pool = self.pool
        assert set(pool.sequences) == set(self.lists)
        for name, line in self.lists.items():
            assert pool.length(name) == len(line)
            assert [self.slots[pool.place(name, i)] for i in range(len(line))] == line

    @invariant()
    def every_block_is_counted_once(self):
        pool, block = self.pool, self.pool.block
        tables = {name: pool.table(name) for name in pool.sequences}
        for name, table in tables.items():
            assert len(table) == len(set(table)) == ceil(len(self.lists[name]) / block)
        held = Counter(b for table in tables.values() for b in table)
        assert pool.free == pool.count - len(held)
        assert pool.saved == sum(held.values()) - len(held)
        for b in range(pool.count):
            assert set(pool.holders(b)) == {name for name, table in tables.items() if b in table}
        # holds gained less holds lost are the holds there are; a copy gains one and loses one
        moved = self.moved
        assert moved["take"] + moved["share"] - moved["leave"] == sum(held.values())

    @invariant()
    def waste_is_what_no_token_stands_in(self):
        pool = self.pool
        standing = {
            pool.place(name, i) for name, line in self.lists.items() for i in range(len(line))
        }
        held = {b for name in pool.sequences for b in pool.table(name)}
        assert pool.wasted == len(held) * pool.block - len(standing)
        assert pool.filled == {b: sum(at == b for at, _ in standing) for b in held}


TestTokens = Tokens.TestCase
TestTokens.settings = settings(max_examples=60, stateful_step_count=25)


def test_a_block_shared_by_two_is_written_by_the_second_alone():
    pool = Blocks(count=5, block=4)
    pool.add("a", 7)
    pool.fork("a", "b")
    pool.fork("a", "c")
    assert pool.holders(1) == ("a", "b", "c") and pool.free == 3
    assert pool.extend("b") == [Event("copy", "b", 2, source=1, tokens=3)]
    assert pool.extend("a") == [Event("copy", "a", 3, source=1, tokens=3)]
    assert pool.extend("c") == []  # the last holder writes where it is
    assert [pool.table(s) for s in "abc"] == [(0, 3), (0, 2), (0, 1)]
    assert pool.saved == 2


def test_a_full_block_is_never_copied():
    pool = Blocks(count=4, block=3)
    pool.add("a", 6)
    pool.fork("a", "b")
    assert pool.extend("b") == [Event("take", "b", 2)]
    assert pool.extend("a", 0) == []


def test_a_copy_counts_as_a_block_that_is_needed():
    pool = Blocks(count=3, block=4)
    pool.add("a", 7)
    pool.fork("a", "b")
    before = state(pool)
    assert pool.needed("b", 2) == 2
    with pytest.raises(CacheFull, match=r"'b' needs 2 more blocks of 4 for 9 .* and 1 of 3 are"):
        pool.extend("b", 2)
    assert state(pool) == before
    pool.extend("b", 1)
    assert pool.free == 0


def test_blocks_that_were_dropped_are_used_again_in_any_order():
    pool = Blocks(count=4, block=2)
    for name in "abcd":
        pool.add(name, 2)
    pool.drop("c")
    pool.drop("a")
    pool.extend("d", 3)
    assert sorted(pool.table("d")) == [0, 2, 3] and pool.free == 0


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: Blocks(0), "count is 0"),
        (lambda: Blocks(2, block=0), "block is 0"),
        (lambda: Blocks(2).add("a", -1), "tokens is -1"),
        (lambda: Blocks(2).extend("a"), "sequence is 'a', must be one that is here: none"),
        (lambda: Blocks(2).drop("a"), "sequence is 'a'"),
        (lambda: Blocks(2).fork("a", "b"), "parent is 'a'"),
        (lambda: Blocks(2).table("a"), "sequence is 'a'"),
        (lambda: Blocks(2).length("a"), "sequence is 'a'"),
        (lambda: Blocks(2).place("a", 0), "sequence is 'a'"),
        (lambda: Blocks(2).holders(2), "block is 2, must be from 0 to 1"),
    ],
)
def test_what_cannot_be_is_said(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def test_a_name_is_taken_once():
    pool = Blocks(3)
    pool.add("a", 3)
    before = state(pool)
    for call in (lambda: pool.add("a"), lambda: pool.fork("a", "a")):
        with pytest.raises(ValueError, match="is 'a', must be"):
            call()
    for token in (-1, 3):
        with pytest.raises(ValueError, match=f"token is {token}, must be from 0 to 2"):
            pool.place("a", token)
    with pytest.raises(CacheFull):
        pool.add("b", 100)
    assert state(pool) == before


# --- sharing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 3, 4])
@pytest.mark.parametrize("samples", [1, 2, 5])
@pytest.mark.parametrize("output", [0, 1, 4, 6])
@pytest.mark.parametrize("prompt", [1, 4, 7])
def test_the_closed_form_of_parallel_samples_is_what_the_books_come_to(
    prompt, output, samples, block
):
    pool = Blocks(count=100, block=block)
    pool.add(0, prompt)
    for sample in range(1, samples):
        pool.fork(0, sample)
    for _ in range(output):
        for sample in range(samples):
            pool.extend(sample)
    held = pool.count - pool.free
    assert parallel(prompt, output, samples, block) == (held, held + pool.saved)


def test_beams_share_what_they_have_in_common():
    together, apart = beam_search(prompt=20, output=30, beams=4, block=4)
    assert apart == sum(4 * ceil((20 + step) / 4) for step in range(1, 31))
    assert together < 0.6 * apart  # only the last tokens differ: lines of descent soon meet
    assert beam_search(prompt=20, output=30, beams=1, block=4) == (apart / 4, apart / 4)
    assert beam_search(9, 9, 3, 4, seed=1) == beam_search(9, 9, 3, 4, seed=1)


@pytest.mark.parametrize("name", ["prompt", "samples", "block"])
def test_sizes_of_parallel_samples_are_checked(name):
    sizes = {"prompt": 3, "output": 2, "samples": 2, "block": 4}
    with pytest.raises(ValueError, match=f"{name} is 0"):
        parallel(**sizes | {name: 0})
    with pytest.raises(ValueError, match="output is -1"):
        parallel(**sizes | {"output": -1})


@pytest.mark.parametrize("name", ["prompt", "output", "beams", "block"])
def test_sizes_of_a_beam_search_are_checked(name):
    sizes = {"prompt": 3, "output": 2, "beams": 2, "block": 4}
    with pytest.raises(ValueError, match=f"{name} is 0"):
        beam_search(**sizes | {name: 0})


# --- the scheduler --------------------------------------------------------------------------------


class Slots:
    """A store of so many slots in which every sequence has the tokens that it was given."""

    def __init__(self, room, tokens):
        self.room, self.tokens, self.held = room, tokens, {}

    def _hold(self, sequence, tokens):
        if sum(self.held.values()) - self.held.get(sequence, 0) + tokens > self.room:
            raise CacheFull("full", tokens, 0)
        self.held[sequence] = tokens

    def admit(self, sequence):
        self._hold(sequence, self.tokens[sequence])

    def grow(self, sequence):
        self._hold(sequence, self.held[sequence] + 1)

    def drop(self, sequence):
        del self.held[sequence]


def test_the_youngest_gives_way_and_comes_back_first():
    scheduler = Scheduler(Slots(room=9, tokens={"a": 3, "b": 3, "c": 3, "d": 1}))
    for name in "abcd":
        scheduler.submit(name)
    assert scheduler.turn() == ([], [], ["a", "b", "c"])
    assert scheduler.turn() == (["c"], ["a", "b"], [])  # a grows at the cost of c
    assert list(scheduler.waiting) == ["c", "d"]
    assert scheduler.turn() == (["b"], ["a"], ["c"][:0])
    assert list(scheduler.waiting) == ["b", "c", "d"]
    scheduler.finish("a")
    assert scheduler.turn().admitted == ["b", "c", "d"]


def test_who_cannot_grow_alone_is_told_so():
    scheduler = Scheduler(Slots(room=4, tokens={"a": 4}))
    scheduler.submit("a")
    assert scheduler.turn().admitted == ["a"]
    assert scheduler.turn() == (["a"], [], [])
    scheduler.store.tokens["a"] = 5
    with pytest.raises(CacheFull):
        scheduler.turn()


# --- serving --------------------------------------------------------------------------------------

ASKED = st.lists(
    st.builds(Request, st.integers(1, 12), st.integers(1, 12), st.integers(0, 6)),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("memory", MEMORIES)
@given(asked=ASKED, more=st.integers(0, 40), block=st.integers(1, 5))
def test_a_service_adds_up(memory, asked, more, block):
    capacity = 32 + more
    served = serve(asked, capacity, memory, block, longest=24)
    made = Counter()
    for life in served.lives:
        made[life.sequence] += life.end - life.begin
        assert life.begin >= asked[life.sequence].arrival
    # every token was made once, and what an eviction cost is what was put in again
    assert made == {i: request.output for i, request in enumerate(asked)}
    assert sum(life.finished for life in served.lives) == len(asked)
    put_in = {}
    for life in served.lives:  # in the order in which they end
        assert life.tokens == put_in.get(life.sequence, asked[life.sequence].prompt - 1) + 1
        put_in[life.sequence] = life.final
        if life.finished:
            assert put_in[life.sequence] == asked[life.sequence].tokens
    ever = sum(life.final for life in served.lives)
    assert served.recomputed == ever - sum(request.tokens for request in asked)
    owner = {}
    for lease in served.leases:
        assert 0 <= lease.start < lease.stop <= capacity
        for at in range(lease.begin, lease.end):
            for slot in range(lease.start, lease.stop):
                assert owner.setdefault((at, slot), lease.sequence) == lease.sequence
    assert len(owner) == sum((x.stop - x.start) * (x.end - x.begin) for x in served.leases)
    for at, moment in enumerate(served.moments):
        assert moment.used + moment.later + moment.never + moment.free == capacity
        cells = served.cells(at)
        assert sum(stop - start for start, stop, _, _ in cells) == capacity - moment.free
        assert sum(filled for *_, filled in cells) == moment.used
        assert len({sequence for _, _, sequence, _ in cells}) == moment.running
        assert min(moment) >= 0


@pytest.mark.parametrize("memory", MEMORIES)
def test_first_come_first_served(memory):
    asked = requests(40, seed=3, prompt=9, output=14, longest=50)
    served = serve(asked, 120, memory, block=4, longest=50)
    begun = {}
    for life in sorted(served.lives, key=lambda life: life.begin):
        begun.setdefault(life.sequence, life.begin)
    starts = [begun[i] for i in range(40)]
    assert starts == sorted(starts)
    assert served.crowded[0] == served.moments[0] and served.steps > len(served.crowded)


def test_what_each_memory_leases():
    asked = [Request(5, 4), Request(2, 12), Request(9, 9), Request(3, 1)]
    sizes = {"reserved": [32] * 4, "buddy": [8, 16, 32, 4], "exact": [8, 13, 17, 3]}
    for memory, wanted in sizes.items():
        served = serve(asked, 128, memory, longest=32)
        leased = {x.sequence: x.stop - x.start for x in served.leases}
        assert [leased[i] for i in range(4)] == wanted
        assert all(x.first == 0 for x in served.leases)
        if memory == "buddy":
            assert all(x.start % (x.stop - x.start) == 0 for x in served.leases)
    paged = serve(asked, 128, "paged", block=4)
    table = sorted((x.first, x.begin, x.end) for x in paged.leases if x.sequence == 1)
    # the first token of a block is written in the step that leases it: tokens 0, 4, 8 and 12
    assert table == [(0, 0, 12), (4, 3, 12), (8, 7, 12), (12, 11, 12)]


def test_how_many_fit_is_what_division_says():
    asked = [Request(5, 12)] * 30
    reserved = serve(asked, 128, "reserved", longest=32)
    exact = serve(asked, 128, "exact")
    assert max(m.running for m in reserved.moments) == 128 // 32
    assert max(m.running for m in exact.moments) == 128 // 16
    assert exact.shares["never"] == 0 and reserved.shares["never"] == 0.5
    # 16 tokens each in the end, but 5 in the beginning: paging admits by what there is
    assert serve(asked, 128, "paged", block=1).moments[0].running == 128 // 5


@pytest.mark.parametrize("block", [1, 4, 7, 16])
def test_paging_wastes_less_than_a_block_per_sequence_and_half_of_one_on_average(block):
    served = serve(requests(150, seed=2, prompt=90, output=120), 3000, "paged", block)
    room = 3000 // block * block
    wastes = []
    for moment in served.crowded:
        leased = 3000 - moment.free
        assert leased - moment.used <= moment.running * (block - 1)
        assert leased <= room
        wastes.append((leased - moment.used) / moment.running)
    assert mean(wastes) == pytest.approx((block - 1) / 2, abs=0.06 * block)


def test_paging_fits_more_than_knowing_the_length_and_that_more_than_reserving():
    asked = requests(150, seed=5, prompt=40, output=80, longest=512)
    served = {m: serve(asked, 4096, m, longest=512) for m in MEMORIES}
    running = [served[m].running for m in ("reserved", "buddy", "exact", "paged")]
    assert running == sorted(running) and running[3] > 4 * running[0]
    assert served["paged"].shares["used"] > 0.9
    assert all(served[m].evictions == served[m].recomputed == 0 for m in MEMORIES if m != "paged")
    assert served["paged"].evictions > 0 and served["paged"].recomputed > 0


def test_who_comes_late_waits_for_nobody_when_there_is_room():
    served = serve([Request(2, 3, arrival=4), Request(2, 2, arrival=1)], 64, "exact")
    assert [(x.sequence, x.begin, x.end) for x in served.lives] == [(1, 1, 3), (0, 4, 7)]
    assert [m.running for m in served.moments] == [0, 1, 1, 0, 1, 1, 1]
    assert served.crowded == served.moments and served.running == 5 / 7


def test_lengths_have_the_means_that_were_asked_for():
    asked = requests(4000, seed=1, prompt=60, output=200, longest=10**6)
    assert mean(r.prompt for r in asked) == pytest.approx(60, rel=0.05)
    assert mean(r.output for r in asked) == pytest.approx(200, rel=0.05)
    assert asked == requests(4000, seed=1, prompt=60, output=200, longest=10**6)
    assert asked != requests(4000, seed=2, prompt=60, output=200, longest=10**6)
    short = requests(500, seed=1, prompt=60, output=200, longest=100)
    assert max(r.prompt + r.output for r in short) == 100 and min(map(min, short)) >= 0
    assert requests(3, prompt=1, output=1) == [Request(1, 1)] * 3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"memory": "page"}, "memory is 'page', must be one of reserved, buddy, exact, paged"),
        ({"asked": []}, "asked is empty"),
        ({"capacity": 0}, "capacity is 0"),
        ({"block": 0}, "block is 0"),
        ({"longest": 0}, "longest is 0"),
        ({"asked": [Request(1, 1), Request(0, 1)]}, r"asked\[1\] is Request\(prompt=0"),
        ({"asked": [Request(1, 0)]}, r"asked\[0\]"),
        ({"asked": [Request(1, 1, -1)]}, r"asked\[0\]"),
        ({"asked": [Request(20, 20)], "longest": 30}, "39 tokens, must be at most longest = 30"),
    ],
)
def test_what_cannot_be_served_is_said(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        serve(**{"asked": [Request(3, 3)], "capacity": 64, "memory": "paged"} | change)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_request_that_cannot_fit_even_alone_is_a_full_cache(memory):
    with pytest.raises(CacheFull):
        serve([Request(30, 40)], 64, memory, longest=70)


def test_bad_lengths_and_steps():
    for name in ("number", "prompt", "output"):
        with pytest.raises(ValueError, match=f"{name} is 0"):
            requests(**{"number": 3} | {name: 0})
    with pytest.raises(ValueError, match="longest is 1"):
        requests(3, longest=1)
    served = serve([Request(3, 3)], 64, "paged")
    for at in (-1, 3):
        with pytest.raises(ValueError, match=f"step is {at}, must be from 0 to 2"):
            served.cells(at)


# --- a server -------------------------------------------------------------------------------------


def test_what_the_papers_say_of_latents_and_of_grouped_heads():
    """Bytes in 16 bits as Zhao et al. 2025 (Insights into DeepSeek-V3, table 1) print them."""
    assert bytes_per_token(SERVED["deepseek-v3"]) == 70272
    assert bytes_per_token(SERVED["llama3-405b"]) == 516096
    assert round(SERVED["deepseek-v3"].params / 1e9) == 671
    assert round(SERVED["llama3-405b"].params / 1e9) == 406
    assert round(SERVED["llama3-70b"].params / 1e9, 1) == 70.6


@pytest.mark.parametrize("name", ["llama2-7b", "llama3-70b", "70b mha", "70b mqa"])
@pytest.mark.parametrize(("batch", "context", "T"), [(1, 100, 1), (7, 4096, 1), (300, 512, 4)])
def test_a_server_reads_what_a_step_reads(name, batch, context, T):
    """The two counts differ by the queries, outputs and new keys, which `step` has."""
    server, work = Server(SERVED[name], CHIPS["h100"]), step(SERVED[name], batch, context, T=T)
    parts = server.matmuls(batch * T), server.attention(batch, context, T)
    assert sum(part.flops for part in parts) == pytest.approx(work.flops, rel=0.001)
    shape = server.shape
    more = shape.layers * batch * T * 2 * (2 * shape.heads + 2 * shape.groups) * shape.key_width
    assert sum(part.bytes for part in parts) + more == pytest.approx(work.bytes, rel=0.001)


def test_attention_over_a_latent_has_its_intensity():
    server = Server(SERVED["70b mla"], CHIPS["h100"])
    work = server.attention(3, 1000, T=2)
    assert work.intensity == pytest.approx(latent_intensity(H=64, K=576, V=512, T=2))
    assert server.held(1000) == 1000 * 80 * 576 * 2


@given(
    n=st.sampled_from([3, 4, 8]),
    context=st.integers(100, 50000),
    limit=st.floats(0.005, 0.2),
    cache=st.sampled_from([1, 2]),
    wait=st.sampled_from([0.0, 0.002]),
)
def test_a_batch_is_the_largest_that_fits_and_is_fast_enough(n, context, limit, cache, wait):
    server = Server(SERVED["llama3-70b"], CHIPS["h100"], n, cache, reached=0.8, wait=wait)
    most = server.batch(context, limit)
    assert most <= server.room(context)
    if most:
        assert server.seconds(most, context) <= limit
    if most < server.room(context):
        assert server.seconds(most + 1, context) > limit
    held = server.room(context) * server.held(context) + server.weights
    assert server.room(context) == 0 or held <= 0.9 * n * CHIPS["h100"].memory


def test_a_server_refuses_experts_and_more_than_all():
    with pytest.raises(ValueError, match="shape has experts, must have none"):
        Server(SERVED["deepseek-v3"], CHIPS["h100"])
    with pytest.raises(ValueError, match=r"reached is 1.5, must be at most 1"):
        Server(SERVED["llama3-8b"], CHIPS["h100"], reached=1.5)


def test_what_a_gpu_reads_of_a_model_with_experts():
    """All experts and no cache to speak of: all parameters but the embedding."""
    shape = SERVED["deepseek-v3"]
    weights, caches = expert_bytes(shape, 256, 1, 1)
    assert weights == shape.params - shape.vocab * shape.width
    assert caches == bytes_per_token(shape)
    less = weights - expert_bytes(shape, 255, 1, 1)[0]
    assert less == 58 * 3 * 7168 * 2048
    with pytest.raises(ValueError, match="shape has no experts"):
        expert_bytes(SERVED["llama3-8b"], 1, 1, 1)


# --- guesses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("acceptance", "guesses"), [(0.3, 1), (0.8, 4), (0.95, 9)])
def test_tokens_of_a_step_are_those_of_throws_of_dice(acceptance, guesses):
    assert expected_tokens(acceptance, guesses) == pytest.approx(
        (1 - acceptance ** (guesses + 1)) / (1 - acceptance)
    )
    dice, made = Random(0), 0
    for _ in range(20000):
        made += 1
        for _ in range(guesses):
            if dice.random() >= acceptance:
                break
            made += 1
    assert made / 20000 == pytest.approx(expected_tokens(acceptance, guesses), rel=0.02)


def test_guesses_pay_where_reading_is_all():
    server = Server(SERVED["llama3-70b"], CHIPS["h100"], 4)
    assert speculation(server, 1, 1024, 0.8, 0, 0.05) == 1
    few = speculation(server, 1, 1024, 0.8, 4, 0.05)
    assert few == pytest.approx(expected_tokens(0.8, 4) / 1.2, rel=0.01)
    gains = [speculation(server, batch, 1024, 0.8, 4, 0.05) for batch in (1, 64, 128, 256, 1024)]
    assert gains == sorted(gains, reverse=True) and gains[-1] < 1
    assert speculation(server, 1024, 32768, 0.8, 4, 0.05) > 2
    assert speculation(server, 1, 1024, 0.0, 4, 0.05) < 1


# --- batches --------------------------------------------------------------------------------------


@st.composite
def queues(draw):
    request = st.builds(Request, st.integers(1, 30), st.integers(1, 12), st.integers(0, 20))
    return draw(st.lists(request, min_size=1, max_size=9))


@settings(max_examples=150)
@given(asked=queues(), policy=st.sampled_from(POLICIES), rows=st.integers(1, 4))
def test_each_request_gets_its_tokens_one_a_step_and_no_row_is_taken_twice(asked, policy, rows):
    one = batched(asked, policy, rows, budget=max(8, rows), knee=8)
    before = 0.0
    for step_ in one.steps:
        assert step_.begin >= before and step_.parts
        tokens = sum(part.tokens for part in step_.parts)
        assert step_.end - step_.begin == pytest.approx(max(1, tokens / 8))
        taken = [part.row for part in step_.parts] + list(step_.held)
        assert len(set(taken)) == len(taken) and set(taken) <= set(range(rows))
        if policy == "chunked":
            assert tokens <= max(8, rows) and step_.end - step_.begin == 1
        assert all(asked[part.request].arrival <= step_.begin for part in step_.parts)
        before = step_.end
    for i, request in enumerate(asked):
        parts = [part for s in one.steps for part in s.parts if part.request == i]
        assert len({part.row for part in parts}) == 1
        assert sum(part.tokens for part in parts if part.prompt) == request.prompt
        assert sum(part.makes for part in parts) == len(one.made(i)) == request.output
        assert all(part.tokens == 1 and part.makes for part in parts if not part.prompt)
    assert one.rate == pytest.approx(sum(r.output for r in asked) / one.end)


def test_policies_trade_the_first_token_for_the_gap():
    asked = [Request(4, 9), Request(6, 4), Request(3, 12), Request(24, 5, 3), Request(5, 8, 5)]
    static, continuous, chunked = (batched(asked, p, 3, budget=8) for p in POLICIES)
    assert static.first > continuous.first and static.end > continuous.end
    assert continuous.gap == 3.25 and chunked.gap == static.gap == 1
    assert any(step_.held for step_ in static.steps)
    assert not any(step_.held for step_ in (*continuous.steps, *chunked.steps))


def test_what_batches_refuse():
    with pytest.raises(ValueError, match="policy is 'best', must be one of static"):
        batched([Request(1, 1)], "best")
    with pytest.raises(ValueError, match=r"asked\[0\] is .* must have a prompt"):
        batched([Request(0, 1)], "static")
    with pytest.raises(ValueError, match="budget is 2, must be at least rows = 4"):
        batched([Request(1, 1)], "chunked", rows=4, budget=2)
