"""The hidden tests: 5 of the 20 points, on sizes drawn at random. Each counts once the visible ones
of its function pass, so that no time goes into shrinking what they have shown already."""

import importlib.util
from fractions import Fraction
from itertools import accumulate
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.hidden


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


class Block:
    """A block of a pool: what it can be found by, who holds it, and when the last one let go."""

    def __init__(self):
        self.content, self.holders, self.gone = None, set(), -1


class Pool:
    """Real blocks, one by one, and a table for each request."""

    def __init__(self, count, block):
        self.blocks, self.block = [Block() for _ in range(count)], block
        self.tokens, self.tables = {}, {}

    def with_content(self, tokens):
        return next((b for b in self.blocks if b.content == tuple(tokens)), None)

    def do(self, now, kind, name, more=None):
        if kind == "end":
            for b in self.tables.pop(name):
                b.holders.remove(name)
                if not b.holders:
                    b.gone = now
            del self.tokens[name]
            return 0
        tokens = list(more) if kind == "start" else self.tokens[name] + [more]
        table = [] if kind == "start" else list(self.tables[name])
        if kind == "start":
            for end in range(self.block, len(tokens), self.block):
                found = self.with_content(tokens[:end])
                if found is None:
                    break
                table.append(found)
        had = len(table) * self.block if kind == "start" else 0
        room = [b for b in self.blocks if not b.holders and b not in table]
        room.sort(key=lambda b: (0, 0, 0) if b.content is None else (1, b.gone, -len(b.content)))
        wanted = ceil(len(tokens) / self.block) - len(table)
        if wanted > len(room):
            return None
        for b in room[:wanted]:
            b.content = None
        table += room[:wanted]
        for i, b in enumerate(table):
            upto = tokens[: (i + 1) * self.block]
            if len(upto) == (i + 1) * self.block:
                table[i] = self.with_content(upto) or b
                table[i].content = tuple(upto)
        for b in self.blocks:
            b.holders.discard(name)
        for b in table:
            b.holders.add(name)
        self.tokens[name], self.tables[name] = tokens, table
        return had


def followed(operations, count, block):
    """What `prefix` has to give."""
    pool = Pool(count, block)
    return [pool.do(now, *operation) for now, operation in enumerate(operations)]


@st.composite
def requests(draw):
    """Operations with right names on a pool that is often full, and what is right."""
    count, block = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    pool, made, right = Pool(count, block), [], []
    word = st.sampled_from([1, 1, 1, 2])
    for now in range(draw(st.integers(1, 14))):
        kinds = ["start", "start", "next", "end", "end"] if pool.tables else ["start"]
        kind = draw(st.sampled_from(kinds))
        name = f"s{now}" if kind == "start" else draw(st.sampled_from(sorted(pool.tables)))
        more = [draw(st.lists(word, min_size=1, max_size=3 * block + 1))] if kind == "start" else []
        more = [draw(word)] if kind == "next" else more
        made.append([kind, name, *more])
        right.append(pool.do(now, *made[-1]))
    return made, count, block, right


@pytest.mark.points(
    1,
    after="test_prefix_evicted",
    seconds=60,
    read="When the cache is full",
    hint="try blocks of one token, requests that compute the same, and one that ends in between",
)
@settings(max_examples=200)
@given(played=requests())
def test_prefix_any(answers, probe, played):
    """Prefix: any requests on any pool."""
    operations, count, block, right = played
    probe.check_prefix(answers, operations, count, block, right)


def walked(parents, tokens, q, p, uniforms):
    """What `verify` has to give, of whole numbers that are normalized as fractions."""

    def shares(row):
        total = sum(row)
        return [Fraction(x) / total for x in row]

    numbers, here, made = iter(uniforms), 0, []
    while True:
        model, guess = shares(p[here]), shares(q[here])
        for child in (i for i, parent in enumerate(parents) if parent == here):
            x = tokens[child]
            if next(numbers) * guess[x] < model[x]:
                here = child
                made.append(x)
                break
            model = shares([max(Fraction(0), a - b) for a, b in zip(model, guess, strict=True)])
            guess = [y * (i != x) for i, y in enumerate(guess)]
            guess = shares(guess) if any(guess) else guess
        else:
            u = next(numbers)
            return [*made, next(x for x, upto in enumerate(accumulate(model)) if upto > u)]


@st.composite
def trees(draw):
    """A tree with siblings that differ, chances as small whole numbers, and numbers to decide by.

    Those are halves of 2003rd parts, so that none is just a chance.
    """
    N, nodes = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    row = st.lists(st.integers(0, 4), min_size=N, max_size=N).filter(any)
    q, p = (draw(st.lists(row, min_size=nodes, max_size=nodes)) for _ in range(2))
    parents, tokens = [-1], [0]
    for _ in range(1, nodes):
        parent = draw(st.integers(0, len(parents) - 1))
        taken = {tokens[i] for i, other in enumerate(parents) if other == parent}
        left = [x for x in range(N) if q[parent][x] and x not in taken]
        if left:
            parents.append(parent)
            tokens.append(draw(st.sampled_from(left)))
    count = len(parents)
    numbers = st.integers(0, 2002).map(lambda i: Fraction(2 * i + 1, 4006))
    uniforms = draw(st.lists(numbers, min_size=count + 1, max_size=count + 1))
    return parents, tokens, q[:count], p[:count], uniforms


@pytest.mark.points(
    1,
    after="test_verify_siblings",
    seconds=60,
    read="Guessing ahead: speculative decoding",
    hint="try siblings whose numbers do not follow each other, and a word that the model or the"
    " draft never has",
)
@settings(max_examples=150)
@given(tree=trees())
def test_verify_any(answers, probe, tree):
    """Verify: any tree, any chances."""
    parents, tokens, q, p, uniforms = tree
    right = walked(*tree)
    q, p = ([[x / sum(row) for x in row] for row in rows] for rows in (q, p))
    case = list(parents), list(tokens), q, p, [float(u) for u in uniforms]
    probe.check_walk(answers, case, right)


@st.composite
def drafted(draw):
    """A draft of some kind."""
    layers = draw(st.integers(0, 3))
    right = draw(st.lists(st.sampled_from([0.2, 0.5, 0.7, 0.9, 1.0]), min_size=1, max_size=4))
    one = {"layers": layers, "params": 0, "cache": 0, "right": right}
    if layers:
        one |= {"params": draw(st.integers(100, 20000)), "cache": draw(st.integers(1, 20))}
    return one


@pytest.mark.points(
    1,
    after="test_draft_real",
    seconds=60,
    read="When to use which",
    hint="try one GPU, a draft that is larger than its use, and limits that only guesses meet",
)
@settings(max_examples=60)
@given(
    gpus=st.integers(1, 9),
    memory=st.sampled_from([5e4, 1e5, 4e5]),
    rate=st.sampled_from([1e7, 1e8, 1e9]),
    wait=st.sampled_from([0.0, 1e-4, 2e-3]),
    layers=st.integers(1, 6),
    params=st.integers(5000, 60000),
    cache=st.integers(4, 40),
    drafts=st.lists(drafted(), max_size=3),
    context=st.sampled_from([10, 100, 1000]),
    limit=st.sampled_from([0.01, 0.03, 0.1, 0.3]),
)
def test_draft_any(answers, probe, gpus, memory, rate, wait, drafts, context, limit, **model):
    """Draft: any model, drafts and GPUs."""
    drafts = [{"name": f"draft {i}"} | one for i, one in enumerate(drafts)]
    node = {"gpus": gpus, "memory": memory, "bandwidth": 1e6, "rate": rate, "wait": wait}
    given = dict(node), dict(model), [dict(one) for one in drafts]
    got = answers.draft(*given, context, limit)
    probe.check_draft(node, model, drafts, context, limit, got)


@pytest.mark.points(
    1,
    after="test_cascade_memory",
    tier="chip",
    seconds=60,
    read="One reading, many programs",
    hint="try blocks of one token, a sequence that ends with the prefix, and one sequence alone",
)
@settings(max_examples=20)
@given(
    more=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    shared=st.integers(0, 3),
    block=st.integers(1, 4),
    G=st.integers(1, 3),
    R=st.integers(1, 3),
    K=st.integers(1, 5),
    V=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_cascade_any(answers, probe, more, shared, block, G, R, K, V, seed):
    """Cascade at any size: right, and everything is read once."""
    needs("torch")
    lengths = [shared * block + length for length in more]
    case = f"cascade: {lengths=}, {shared=}, {block=}, H={G * R}, {G=}, {K=}, {V=}, {seed=}"
    given = lengths, shared, block, G * R, G, K, V, 1 << 20
    report = answers.probe.cascade(*given, loud=20.0, seed=seed)
    probe.check(case, report)
    probe.check_cascade(case, report)


@pytest.mark.points(
    1,
    after="test_latent_loads",
    tier="chip",
    seconds=60,
    read="One reading, many programs",
    hint="try a length of 0, a group of all numbers, and more pieces than the sequence fills",
)
@settings(max_examples=12)
@given(
    length=st.integers(0, 30),
    BLOCK=st.sampled_from([2, 4, 8]),
    blocks=st.integers(1, 3),
    more=st.integers(0, 2),
    H=st.sampled_from([2, 4]),
    C=st.sampled_from([4, 16]),
    R=st.sampled_from([2, 8]),
    GROUP=st.sampled_from([2, 4]),
    loud=st.sampled_from([1.0, 300.0]),
    seed=st.integers(0, 99),
)
def test_latent_any(answers, probe, length, BLOCK, blocks, more, H, C, R, GROUP, loud, seed):
    """Latent at any size: right, and nothing loaded twice."""
    needs("torch", "triton")
    each = blocks * BLOCK
    pieces = max(1, ceil(length / each) + more)
    case = f"latent: {length=}, {each=}, {pieces=}, {H=}, {C=}, {R=}, {GROUP=}, {BLOCK=}, {loud=}"
    report = answers.probe.latent(length, each, pieces, H, C, R, GROUP, BLOCK, loud, seed)
    probe.check(case, report)
    probe.check_latent(case, report, length, each, pieces, BLOCK)
