"""The visible tests: 15 of the 20 points. The cases come smallest first."""

import importlib.util

import pytest

from weft.plan.hardware import CHIPS
from weft.plan.shape import SHAPES

SHARING, FULL = "Sharing a prefix, and copying when written", "When the cache is full"
GUESSING, WHICH = "Guessing ahead: speculative decoding", "When to use which"
KERNEL, BYTES = "One reading, many programs", "How many bytes a token leaves"
BATCH = "What breaks: a step that reads everything for one token"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- prefixes -------------------------------------------------------------------------------------

MANY = 60  # blocks
FOUND = [  # block, operations, what is right
    (2, [("start", "a", [1, 2]), ("start", "b", [1, 2])], [0, 0]),
    (2, [("start", "a", [1, 2, 3]), ("start", "b", [1, 2, 4])], [0, 2]),
    (2, [("start", "a", [1, 2, 3, 4]), ("start", "b", [3, 4, 5])], [0, 0]),
    (1, [("start", "a", [5, 5, 5]), ("start", "b", [5, 5, 6, 7]), ("start", "c", [5])], [0, 2, 0]),
    (
        2,
        [("start", "a", [1]), ("next", "a", 2), ("next", "a", 3), ("start", "b", [1, 2, 3, 4])],
        [0, 0, 0, 2],
    ),
    (2, [("start", "a", [1, 2, 3]), ("end", "a"), ("start", "a", [1, 2, 3])], [0, 0, 2]),
    (
        3,
        [
            ("start", "a", [1, 2, 3, 4, 5, 6, 7]),
            ("start", "b", [1, 2, 3, 9, 5, 6, 7]),
            ("start", "c", [1, 2, 3, 4, 5, 6]),
            ("end", "a"),
            ("next", "b", 8),
            ("next", "b", 9),
            ("start", "d", [1, 2, 3, 9, 5, 6, 7, 8, 9, 1]),
            ("end", "d"),
            ("start", "e", [1, 2, 3, 4, 5, 6, 7]),
        ],
        [0, 3, 3, 0, 0, 0, 9, 0, 6],
    ),
]
ROOM = [  # count, block, operations, what is right
    (1, 2, [("start", "a", [1, 2, 3]), ("start", "a", [1, 2]), ("next", "a", 3)], [None, 0, None]),
    (
        2,
        2,
        [("start", "a", [1, 2, 3]), ("end", "a"), ("start", "b", [1, 2, 3, 4, 5]),
         ("start", "c", [1, 2, 3, 4])],
        [0, 0, None, 2],
    ),
    (
        3,
        2,
        [("start", "a", [1, 2, 3]), ("start", "b", [1, 2, 4]), ("next", "a", 5), ("end", "a"),
         ("start", "c", [7, 8]), ("next", "b", 5), ("next", "b", 6), ("next", "c", 9)],
        [0, 2, 0, 0, 0, 0, None, None],
    ),
    (
        3,
        2,
        [("start", "a", [1, 2, 3, 4]), ("start", "b", [1, 2, 3, 4]), ("start", "c", [5]),
         ("next", "c", 6), ("next", "c", 7), ("end", "a"), ("next", "c", 7), ("end", "b"),
         ("next", "c", 7)],
        [0, 2, 0, 0, None, 0, None, 0, 0],
    ),
]  # fmt: skip
EVICTED = [
    (
        2,
        1,
        [("start", "a", [1]), ("start", "b", [2]), ("end", "b"), ("end", "a"), ("start", "c", [3]),
         ("end", "c"), ("start", "d", [1, 9]), ("end", "d"), ("start", "e", [2, 9])],
        [0, 0, 0, 0, 0, 0, 1, 0, 0],
    ),
    (
        3,
        2,
        [("start", "a", [1, 2, 3, 4, 5]), ("end", "a"), ("start", "b", [6, 7, 8]), ("end", "b"),
         ("start", "c", [1, 2, 3, 4, 5])],
        [0, 0, 0, 0, 2],
    ),
    (
        4,
        1,
        [("start", "a", [1, 2]), ("start", "b", [3, 4]), ("end", "a"), ("end", "b"),
         ("start", "a", [1, 2, 5]), ("end", "a"), ("start", "c", [6]), ("end", "c"),
         ("start", "b", [3, 4, 5]), ("end", "b"), ("start", "d", [6, 1])],
        [0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1],
    ),
    (
        3,
        1,
        [("start", "a", [1]), ("start", "b", [1, 2]), ("end", "a"), ("start", "c", [3]),
         ("end", "c"), ("end", "b"), ("start", "d", [4]), ("end", "d"), ("start", "e", [1, 2, 3])],
        [0, 1, 0, 0, 0, 0, 0, 0, 2],
    ),
]  # fmt: skip


@pytest.mark.points(
    1,
    read=SHARING,
    hint="the same tokens behind other ones are other keys and values; the last token of a prompt"
    " is computed; blocks that an answer fills, or that nobody holds any more, are found, too",
)
def test_prefix(answers, probe):
    """Prefix: what is found, where there is room for everything."""
    for block, operations, right in FOUND:
        probe.check_prefix(answers, operations, MANY, block, right)


@pytest.mark.points(
    1,
    after="test_prefix",
    read=FULL,
    hint="count blocks without content, and those that nobody holds; what this request has just"
    " found is no room for it; a block computed twice is given back",
)
def test_prefix_room(answers, probe):
    """Prefix: None exactly where there is too little room, and then nothing has changed."""
    for count, block, operations, right in ROOM:
        probe.check_prefix(answers, operations, count, block, right)


@pytest.mark.points(
    1,
    after="test_prefix_room",
    read=FULL,
    hint="whose last holder has let go first; and of one request the end of its sequence first,"
    " which nothing else needs",
)
def test_prefix_evicted(answers, probe):
    """Prefix: which block is taken, when none is without content."""
    for count, block, operations, right in EVICTED:
        probe.check_prefix(answers, operations, count, block, right)


# --- guesses --------------------------------------------------------------------------------------

CHANCES = [  # q, p
    ([0.5, 0.5], [0.25, 0.75]),
    ([0.5, 0.25, 0.25], [0.25, 0.25, 0.5]),
    ([0.25, 0.25, 0.5], [0.0, 0.75, 0.25]),
    ([0.2, 0.2, 0.2, 0.4], [0.5, 0.3, 0.1, 0.1]),
    ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]),
    ([0.5, 0.25, 0.25, 0.0], [0.25, 0.375, 0.125, 0.25]),
]


def sure(*words, N=4):
    """Chances with which each of these words is the only one."""
    return [[float(x == word) for x in range(N)] for word in words]


EVEN = [0.25] * 4
TREES = [  # parents, tokens, q, p, uniforms; where the model is sure of each word
    ([-1], [0], [EVEN], sure(2), [0.5]),
    ([-1, 0], [3, 2], [EVEN] * 2, sure(2, 1), [0.5, 0.5]),
    ([-1, 0], [3, 1], [EVEN] * 2, sure(2, 1), [0.0, 0.0]),
    ([-1, 0, 1, 2], [0, 1, 2, 3], [EVEN] * 4, sure(1, 2, 0, 0), [0.9] * 4),
    ([-1, 0, 0, 0], [0, 1, 2, 3], [EVEN] * 4, sure(2, 0, 3, 1), [0.9] * 5),
    ([-1, 0, 0, 1, 2], [0, 1, 2, 3, 3], [EVEN] * 5, sure(2, 0, 3, 1, 0), [0.5] * 5),
    ([-1, 0, 1, 0, 3, 1], [0, 1, 2, 3, 1, 0], [EVEN] * 6, sure(1, 0, 0, 1, 1, 2), [0.0] * 6),
]
WALKED = [[2], [2, 1], [2], [1, 2, 0], [2, 3], [2, 3, 0], [1, 0, 2]]


def check_chances(answers, probe, count):
    for q, p in CHANCES:
        many = min(count, sum(x > 0 for x in q))
        report = answers.probe.distributed(q, p, many)
        told = f"verify, {many} different guess{'es' * (many > 1)} for one place, {q=}, {p=}"
        probe.check_words(told, p, report)
        probe.check_stands(told, q, p, report)


@pytest.mark.points(
    1,
    read=GUESSING,
    hint="a guess stands with chance min(1, p / q); where it falls, p without what q has had"
    "; p may have words that q never has",
)
def test_verify(answers, probe):
    """Verify: one guess for a place, by all numbers that can be drawn."""
    check_chances(answers, probe, 1)


@pytest.mark.points(
    1,
    after="test_verify",
    read=GUESSING,
    hint="a word that a node of the model is sure of has chance 1: whose children come next?",
)
def test_verify_tree(answers, probe):
    """Verify: which way is gone through a tree, by a model that is sure of each word."""
    for case, right in zip(TREES, WALKED, strict=True):
        probe.check_walk(answers, case, right)


@pytest.mark.points(
    1,
    after="test_verify_tree",
    read=GUESSING,
    seconds=30,
    hint="when a guess has fallen: what has the model still to give, and by which chances was the"
    " next guess drawn, as it is another word?",
)
def test_verify_siblings(answers, probe):
    """Verify: several guesses for a place: the model's chances, and no guess wasted."""
    for count in (2, 3, 4):
        check_chances(answers, probe, count)


# --- a draft --------------------------------------------------------------------------------------

TOY = {"gpus": 4, "memory": 10**5, "bandwidth": 1e6, "rate": 1e7, "wait": 1e-4}
SMALL = {"layers": 4, "params": 40000, "cache": 16}
QUICK = {"name": "quick", "layers": 1, "params": 800, "cache": 2, "right": [0.6, 0.6, 0.3]}
GOOD = {"name": "good", "layers": 2, "params": 3000, "cache": 6, "right": [0.9, 0.95, 0.9, 0.9]}
TEXT = {"name": "text", "layers": 0, "params": 0, "cache": 0, "right": [0.3, 0.6, 0.8]}
TOYS = [  # what differs of the node, drafts, context, limit
    ({}, [], 10, 0.1),
    ({}, [], 10, 0.01),
    ({"gpus": 1}, [], 10, 0.2),
    ({}, [QUICK], 10, 0.1),
    ({"wait": 1e-3}, [QUICK], 200, 0.03),
    ({}, [QUICK, GOOD], 100, 0.05),
    ({"wait": 1e-3}, [QUICK, GOOD], 200, 0.03),
    ({"rate": 1e9}, [QUICK, GOOD, TEXT], 10, 0.025),
    ({"gpus": 8, "rate": 1e9, "wait": 2e-3}, [GOOD, TEXT], 300, 0.05),
    ({"gpus": 2, "rate": 1e8}, [QUICK, TEXT], 1000, 0.08),
    ({"gpus": 6, "memory": 4 * 10**5}, [QUICK, GOOD, TEXT], 50, 0.06),
]
B1 = {"name": "1B", "layers": 16, "params": 1235814400, "cache": 32768}
B8 = {"layers": 32, "params": 8030261248, "cache": 131072}
B70 = {"layers": 80, "params": SHAPES["llama2-70b"].params + 2 * 96256 * 8192, "cache": 327680}
ONE = B1 | {"right": [0.7, 0.68, 0.66, 0.64, 0.62]}
EIGHT = {"name": "8B"} | B8 | {"right": [0.8, 0.79, 0.78, 0.77, 0.76]}
WORDS = {"name": "text", "layers": 0, "params": 0, "cache": 0, "right": [0.3, 0.6, 0.8, 0.8]}
HEAD = {"name": "head", "layers": 1, "params": 10**9, "cache": 4096}
HEAD |= {"right": [0.75, 0.65, 0.6, 0.55, 0.5]}
REAL = [  # chip, model, drafts, context, limit
    ("h100", B70, [ONE, EIGHT], 4096, 0.02),
    ("h100", B70, [ONE, EIGHT], 65536, 0.02),
    ("h200", B70, [ONE, EIGHT], 2048, 0.03),
    ("b200", B70, [ONE, EIGHT], 512, 0.02),
    ("h100", B70, [EIGHT, HEAD], 8192, 0.015),
    ("h200", B70, [ONE, HEAD, WORDS], 2048, 0.03),
    ("a100-80", B8, [ONE, WORDS], 65536, 0.02),
    ("h100", B8, [ONE, WORDS], 8192, 0.015),
    ("h100", B8, [ONE], 65536, 0.02),
]


def real(chip):
    """A node whose kernels reach 80 % of the bandwidth and 40 % of the rate."""
    one = CHIPS[chip]
    rates = {"bandwidth": 0.8 * one.bandwidth, "rate": 0.4 * one.rate("bf16")}
    return {"gpus": 8, "memory": one.memory} | rates | {"wait": 1e-5}


def check_draft(answers, probe, node, model, drafts, context, limit, best=True):
    given = dict(node), dict(model), [one | {"right": [*one["right"]]} for one in drafts]
    probe.check_draft(
        node, model, drafts, context, limit, answers.draft(*given, context, limit), best
    )


@pytest.mark.points(
    1,
    read=BATCH,
    hint="weights or arithmetic, whichever takes longer, then caches, then all-reduces: of each"
    " pass; the model's has one token more than there are guesses; i guesses stand if the first i"
    " are right",
)
def test_draft_fits(answers, probe):
    """Draft: a choice that fits, any of these, and its tokens per second."""
    for more, *rest in TOYS:
        check_draft(answers, probe, TOY | more, SMALL, *rest, best=False)


@pytest.mark.points(
    1,
    after="test_draft_fits",
    read=GUESSING,
    hint="each t, with each draft and without, with each number of guesses: the most sequences",
)
def test_draft(answers, probe):
    """Draft: the most tokens per second of a GPU."""
    for more, *rest in TOYS:
        check_draft(answers, probe, TOY | more, SMALL, *rest)


@pytest.mark.points(
    1,
    after="test_draft",
    seconds=60,
    read=WHICH,
    hint="look at what decides each: weights, caches, arithmetic, all-reduces, or memory",
)
def test_draft_real(answers, probe):
    """Draft: Llama 3.1 70B and 8B on nodes of A100s, H100s, H200s and B200s."""
    for chip, *rest in REAL:
        check_draft(answers, probe, real(chip), *rest)


# --- tiles ----------------------------------------------------------------------------------------

CAPACITY = 7680  # bytes
GRADED = (60, 48, 70, 51, 49, 64), 3, 16, 4, 2, 32, 32  # lengths, shared, block, H, G, K, V
SIZES = "lengths={}, shared={}, block={}, H={}, G={}, K={}, V={}"
CASCADES = [
    ((2,), 0, 2, 1, 1, 2, 2),
    ((4, 3), 1, 2, 1, 1, 2, 2),
    ((2, 4), 1, 2, 2, 1, 2, 3),
    ((9, 5, 8), 1, 4, 4, 2, 3, 2),
    ((0, 3), 0, 4, 2, 2, 3, 5),
    ((4, 4), 2, 2, 6, 2, 2, 2),
    GRADED,
]


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    read=KERNEL,
    hint="as in the merge of pieces: each sequence goes on from the maximum, the sum and the output"
    " that the shared blocks have left for it",
)
def test_cascade(answers, probe):
    """Cascade: right, for any lengths behind any prefix."""
    needs("torch")
    for sizes in CASCADES:
        for loud in (1.0, 60.0):
            case = f"cascade: {SIZES.format(*sizes)}, scores up to about {loud:g}"
            probe.check(case, answers.probe.cascade(*sizes, 1 << 20, loud=loud))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_cascade",
    read=SHARING,
    hint="while a shared block lies in a tile, all queries that need it are there, too",
)
def test_cascade_bytes(answers, probe):
    """Cascade: each key and value is read once, for all heads and sequences that use it."""
    needs("torch")
    for sizes in CASCADES:
        report = answers.probe.cascade(*sizes, 1 << 20)
        probe.check_cascade(f"cascade: {SIZES.format(*sizes)}", report)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_cascade_bytes",
    read=KERNEL,
    hint="one kv head at a time, and one block of keys or of values: `del` what is not needed",
)
def test_cascade_memory(answers, probe):
    """Cascade: six sequences within a small tile memory."""
    needs("torch")
    case = f"cascade: {SIZES.format(*GRADED)}, {CAPACITY:,} bytes"
    report = answers.probe.cascade(*GRADED, CAPACITY)
    probe.check(case, report)
    probe.check_cascade(case, report)


# --- a kernel -------------------------------------------------------------------------------------

LATENT = "length={}, each={}, pieces={}, H={}, C={}, R={}, GROUP={}, BLOCK={}"
WHOLE = [(2, 2, 1, 2, 2, 2, 2, 2), (8, 4, 2, 2, 4, 2, 2, 2), (16, 8, 2, 4, 16, 8, 4, 8)]
RAGGED = [(1, 2, 1, 2, 2, 2, 2, 2), (5, 4, 3, 2, 4, 2, 2, 2), (0, 4, 1, 2, 2, 2, 2, 4)]
RAGGED += [(37, 16, 4, 4, 16, 8, 4, 8)]


def ran_latent(answers, sizes, loud=1.0):
    case = f"latent: {LATENT.format(*sizes)}"
    case += f", scores up to about {loud:g}" if loud > 1 else ""
    return case, answers.probe.latent(*sizes, loud)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    read=BYTES,
    hint="keys are both parts, values are the latent alone; a scale belongs to GROUP numbers;"
    " `scale` is given, not made of C and R",
)
def test_latent(answers, probe):
    """Latent: right for pieces of full blocks, at small and large scores."""
    needs("torch", "triton")
    for sizes in WHOLE:
        for loud in (1.0, 300.0):
            probe.check(*ran_latent(answers, sizes, loud))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_latent",
    read=KERNEL,
    hint="stop at the length; in the last block mask what is loaded, and the scores",
)
def test_latent_ragged(answers, probe):
    """Latent: any length, with nothing touched behind it, and pieces without a token."""
    needs("torch", "triton")
    for sizes in RAGGED:
        probe.check(*ran_latent(answers, sizes))


@pytest.mark.points(
    1,
    tier="chip",
    seconds=30,
    after="test_latent_ragged",
    read=KERNEL,
    hint="one program has all heads: a tile of latents is their keys and their values; a tile of"
    " scales has as many columns as there are groups",
)
def test_latent_loads(answers, probe):
    """Latent: each number of each token, and each scale, is loaded once."""
    needs("torch", "triton")
    for sizes in (*WHOLE, *RAGGED):
        case, report = ran_latent(answers, sizes)
        length, each, pieces, *_, block = sizes
        probe.check_latent(case, report, length, each, pieces, block)
