"""The visible tests: 15 of the 20 points. The cases come smallest first."""

import importlib.util

import pytest

ORDER = "The odometer: which axis gets which wire"
MFU = "MFU and HFU"
SUM, MEMORY = "A step is a sum", "Memory: the fullest device"
SEARCH = "The best layout, and why the runner-up loses"
FAIL = "When devices fail"
TRAINER = "The program grown up"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- between nodes --------------------------------------------------------------------------------

BYTES = {"t": 10000, "c": 1000, "d": 100, "p": 0, "e": 0}


def lengths(t, c, d, p, e=1):
    return {"t": t, "c": c, "d": d, "p": p, "e": e}


RINGS = [  # sizes, GPUs of a node
    (lengths(1, 1, 1, 1), 1),
    (lengths(2, 1, 1, 1), 1),
    (lengths(1, 1, 3, 1), 1),
    (lengths(2, 1, 2, 1), 2),
    (lengths(2, 2, 2, 1), 4),
    (lengths(3, 1, 2, 2), 4),
    (lengths(2, 1, 3, 3), 4),
]
EXPERTS = [
    (lengths(1, 1, 1, 3), 1),
    (lengths(1, 1, 2, 1, 2), 1),
    (lengths(2, 1, 4, 1, 2), 4),
    (lengths(1, 2, 3, 2, 3), 2),
    (lengths(2, 2, 2, 2, 4), 3),
    (lengths(8, 1, 4, 4, 4), 8),
]


def check_crossed(answers, probe, cases, sent):
    for sizes, per_node in cases:
        for order in probe.ORDERS:
            got = answers.crossed(order, dict(sizes), per_node, dict(sent))
            probe.check_crossed(order, sizes, per_node, sent, got)


@pytest.mark.points(
    1,
    read=ORDER,
    hint="the first axis of order has stride 1, and each other the product of those before it",
)
def test_crossed(answers, probe):
    """Crossed: rings of t, c and d in any order, on nodes that are full or not."""
    check_crossed(answers, probe, RINGS, BYTES)


@pytest.mark.points(
    1,
    after="test_crossed",
    read=ORDER,
    hint="stages stand in a row; experts are shared within the ranks of one t and one p",
)
def test_crossed_experts(answers, probe):
    """Crossed: stages, and experts within c and d."""
    check_crossed(answers, probe, EXPERTS, BYTES | {"p": 10, "e": 1})


# --- conventions ----------------------------------------------------------------------------------

SMALL = {"layers": 2, "width": 8, "heads": 2, "groups": 2, "key": 4, "hidden": 32, "matrices": 2}
SMALL |= {"words": 12, "padded": 16, "tied": False}
WIDE = SMALL | {"key": 8, "hidden": 24, "matrices": 3}
RUN = {"gpus": 4, "sequences": 16, "tokens": 32, "peak": 1e6, "recompute": "none"}
PLAIN = {"attention": "all", "recompute": "none", "head": "words", "table": False}


def model(layers, width, heads, groups, key, hidden, matrices, words, padded, tied):
    return {
        "layers": layers, "width": width, "heads": heads, "groups": groups, "key": key,
        "hidden": hidden, "matrices": matrices, "words": words, "padded": padded, "tied": tied,
    }  # fmt: skip


def run(gpus, sequences, tokens, peak, recompute="none"):
    return {
        "gpus": gpus,
        "sequences": sequences,
        "tokens": tokens,
        "peak": peak,
        "recompute": recompute,
    }


MT_NLG = model(105, 20480, 128, 128, 160, 4 * 20480, 2, 50272, 51200, True)
LLAMA_8 = model(32, 4096, 32, 8, 128, 14336, 3, 128256, 128256, False)
LLAMA_405 = model(126, 16384, 128, 8, 128, 53248, 3, 128256, 128256, False)
MPT_30 = model(48, 7168, 64, 64, 112, 4 * 7168, 2, 50432, 50432, True)
HARDWARE = PLAIN | {"recompute": "full", "head": "padded"}
CAUSAL = PLAIN | {"attention": "causal"}
REAL = [  # model, run, what was said
    (MT_NLG, run(2240, 1920, 2048, 312e12, "full"), HARDWARE | {"rate": 126e12}),
    (MT_NLG, run(2800, 1920, 2048, 312e12, "full"), HARDWARE | {"rate": 121e12}),
    (MT_NLG, run(3360, 1920, 2048, 312e12, "full"), HARDWARE | {"rate": 113e12}),
    (LLAMA_8, run(8, 128, 8192, 1979e12), PLAIN | {"rate": 711e12}),
    (LLAMA_8, run(8, 128, 8192, 1979e12), CAUSAL | {"rate": 744e12}),
    (LLAMA_405, run(1024, 512, 8192, 1979e12), CAUSAL | {"rate": 737e12}),
    (LLAMA_405, run(16384, 128, 131072, 989e12), PLAIN | {"rate": 380e12}),
    (MPT_30, run(32, 1344, 2048, 989e12, "full"), PLAIN | {"share": 0.4392, "peak": 989e12}),
    (LLAMA_8, run(8, 128, 8192, 1979e12), PLAIN | {"tokens": 14451.0}),
    (LLAMA_405, run(16384, 2048, 8192, 989e12), PLAIN | {"hours": 30.84e6 / 15.6}),
]  # fmt: skip


def check_undone(answers, probe, model, run, said):
    got = answers.undone(dict(model), dict(run), dict(said))
    probe.check_undone(model, run, said, got)


@pytest.mark.points(
    1,
    read=MFU,
    hint="tokens a second of a GPU are its rate over the FLOPs of a token, as they were counted;"
    " with these all else is counted anew",
)
def test_undone(answers, probe):
    """Undone: a rate, or a share of another peak, with attention and head as somebody counts."""
    for shape in (SMALL, WIDE):
        for attention in ("all", "causal", "none"):
            for head in ("words", "padded"):
                said = PLAIN | {"attention": attention, "head": head}
                check_undone(answers, probe, shape, RUN, said | {"rate": 5e5})
                check_undone(answers, probe, shape, RUN, said | {"share": 0.25, "peak": 2e6})
        check_undone(answers, probe, shape, RUN, PLAIN | {"tokens": 75})
        check_undone(answers, probe, shape, RUN, PLAIN | {"hours": 4e6})


@pytest.mark.points(
    1,
    after="test_undone",
    read=MFU,
    hint="what was counted and what was run may differ; the head is not recomputed, and a tied"
    " table is no matrix more",
)
def test_undone_recompute(answers, probe):
    """Undone: what is recomputed, in the count and in the run, and embeddings that are counted."""
    for shape in (SMALL, WIDE, SMALL | {"tied": True}):
        for counts in ("none", "selective", "full"):
            for runs in ("none", "selective", "full"):
                for attention in ("all", "causal", "none"):
                    said = PLAIN | {"recompute": counts, "attention": attention, "rate": 5e5}
                    check_undone(answers, probe, shape, RUN | {"recompute": runs}, said)
        for head in ("words", "padded"):
            for counts in ("none", "full"):
                said = PLAIN | {"head": head, "table": True, "recompute": counts, "rate": 5e5}
                check_undone(answers, probe, shape, RUN, said)


@pytest.mark.points(
    1,
    after="test_undone_recompute",
    read=MFU,
    hint="look at the sizes: kv heads, three matrices in an MLP, words and their padding",
)
def test_undone_real(answers, probe):
    """Undone: MT-NLG, Llama 3 and MPT, as their makers said it."""
    for shape, runs, said in REAL:
        check_undone(answers, probe, shape, runs, said)


# --- a layout -------------------------------------------------------------------------------------

ROOMY = 10**15  # bytes
TOY = {"layers": 6, "layer": 960, "head": 1500, "heads": 4, "width": 8, "words": 30, "tokens": 16}
TOY |= {"kept": 4000}
GPT3 = {"layers": 96, "layer": 12 * 12288**2 + 13 * 12288, "head": 51200 * 12288, "heads": 96}
GPT3 |= {"width": 12288, "words": 51200, "tokens": 2048, "kept": 34 * 2048 * 12288}
BLOOM = {"layers": 70, "layer": 12 * 14336**2 + 13 * 14336, "head": 250880 * 14336, "heads": 112}
BLOOM |= {"width": 14336, "words": 250880, "tokens": 2048, "kept": 34 * 2048 * 14336}
LLAMA = {"layers": 126, "layer": 3187703808, "head": 128256 * 16384, "heads": 128}
LLAMA |= {"width": 16384, "words": 128256, "tokens": 8192, "kept": 29 * 8192 * 16384}
A100 = {"node": 8, "memory": 80e9, "rate": 156e12, "inside": 300e9, "outside": 25e9}
H100 = {"node": 8, "memory": 80e9, "rate": 494.7e12, "inside": 450e9, "outside": 50e9}
DESIGNS = [  # GPUs, a cluster, a model, a batch
    (1024, A100, GPT3, 1536),
    (1024, A100 | {"outside": 6.25e9}, GPT3, 1536),
    (64, H100, GPT3, 256),
    (384, A100 | {"outside": 6.25e9}, BLOOM, 2048),
    (384, H100, BLOOM, 2048),
    (1024, H100, LLAMA, 512),
    (16384, H100, LLAMA, 2048),
    (576, H100 | {"node": 72, "memory": 192e9, "inside": 900e9}, LLAMA, 512),
    (8, H100, LLAMA, 64),
]


def made(gpus, node, memory=ROOMY, rate=1e6, inside=1e5, outside=1e4):
    return {"gpus": gpus, "node": node, "memory": memory, "rate": rate} | {
        "inside": inside,
        "outside": outside,
    }


def check_layout(answers, probe, cluster, model, batch, fastest=True):
    told = f"layout({cluster}, {model}, {batch=})"
    got = answers.layout(dict(cluster), dict(model), batch)
    probe.check_layout(told, cluster, model, batch, got, fastest)


def edges(probe, cluster, model, batch):
    """Memories in which layouts just fit, and just do not."""
    every = sorted({one[6] for one in probe.all_layouts(cluster, model, batch)})
    for nbytes in every[:: max(1, len(every) // 12)]:
        for factor in (1 - 1e-6, 1 + 1e-6):
            yield cluster | {"memory": nbytes / 0.9 * factor}, model, batch


SMALLEST = [(made(1, 1), TOY, 2), (made(2, 2), TOY, 2), (made(4, 2), TOY, 8), (made(6, 1), TOY, 6)]
THREE = made(3, 3, rate=1e5, inside=1e6), TOY | {"heads": 12, "layer": 10000}, 1  # t = 3 is best


@pytest.mark.points(
    1,
    read=MEMORY,
    hint="two candidates, the first rank and the last; head and scores are on the last alone, and"
    " with one stage both are the same rank",
)
def test_layout_memory(answers, probe):
    """Layout: whether one fits, any of these, and the bytes of its fullest rank."""
    for base in (*SMALLEST, (made(8, 4), TOY | {"words": 3000}, 8)):
        for case in edges(probe, *base):
            check_layout(answers, probe, *case, fastest=False)


@pytest.mark.points(
    1,
    seconds=60,
    after="test_layout_memory",
    read=SUM,
    hint="m is the batch over d, and S the slowest rank's",
)
def test_layout_time(answers, probe):
    """Layout: the shortest step, with small heads and large ones, on fast links and slow ones."""
    check_layout(answers, probe, *THREE)
    for gpus, node, batch in ((1, 1, 2), (2, 1, 4), (4, 2, 8), (6, 2, 12), (16, 4, 16)):
        for head in (0, 1500, 6000):
            for outside in (1e2, 1e4, 1e7):
                base = made(gpus, node, outside=outside), TOY | {"head": head}, batch
                check_layout(answers, probe, *base)
                for case in list(edges(probe, *base))[1:12:4]:
                    check_layout(answers, probe, *case)


@pytest.mark.points(
    1,
    seconds=60,
    after="test_layout_time",
    read=SEARCH,
    hint="ask of each what decides: memory, the bubble, or the port",
)
def test_layout_real(answers, probe):
    """Layout: GPT-3, BLOOM and Llama 3 405B on A100s and H100s."""
    for gpus, cluster, shape, batch in DESIGNS:
        check_layout(answers, probe, {"gpus": gpus} | cluster, shape, batch)


# --- a rhythm -------------------------------------------------------------------------------------

COPIES = {"copy": 60.0, "write": 0.0, "near": 0.0, "far": 600.0}
BOTH = {"copy": 2.0, "write": 60.0, "near": 120.0, "far": 900.0}
LLAMA_HOURS = 54 * 24 * 16384 / 419  # GPU-hours between the stops of Llama 3


def check_rhythm(answers, probe, runs, hours, share, costs):
    got = answers.rhythm(list(runs), hours, share, dict(costs))
    probe.check_rhythm(runs, hours, share, costs, got)


@pytest.mark.points(
    1,
    read=FAIL,
    hint="a failure costs half of what lies between copies; M is what is left of `hours` for all"
    " GPUs together; a is a whole number",
)
def test_rhythm(answers, probe):
    """Rhythm: one run, whose failures all take its copies along, and writes that cost nothing."""
    near = COPIES | {"copy": 6.0}  # the best fraction is 1.45, of 1 and 2 the better one 2
    check_rhythm(answers, probe, [(1024, 1000.0)], 5e4, 0.0, near)
    for gpus, step in ((1, 1.0), (8, 100.0), (1024, 5.0), (1024, 4000.0), (16384, 7.0)):
        for hours in (2e4, LLAMA_HOURS):
            for costs in (COPIES, COPIES | {"copy": 1.0}, COPIES | {"copy": 600.0, "far": 0.0}):
                check_rhythm(answers, probe, [(gpus, step)], hours, 0.0, costs)


@pytest.mark.points(
    1,
    seconds=60,
    after="test_rhythm",
    read=FAIL,
    hint="best a for each k, then the best of these; the nearest whole numbers of the best"
    " fractions are not always best",
)
def test_rhythm_levels(answers, probe):
    """Rhythm: copies, of which some are written."""
    for share in (0.0, 0.5, 0.9, 0.99):
        for step in (1.0, 30.0, 300.0):
            for costs in (BOTH, BOTH | {"copy": 20.0}, BOTH | {"write": 3.0}):
                check_rhythm(answers, probe, [(4096, step)], LLAMA_HOURS, share, costs)


@pytest.mark.points(
    1,
    seconds=60,
    after="test_rhythm_levels",
    read=FAIL,
    hint="steps of a day are what counts: more GPUs have shorter steps, and fail more often",
)
def test_rhythm_runs(answers, probe):
    """Rhythm: the run that gets furthest, and none that would."""
    runs = [(8192, 13.4), (16384, 6.9), (32768, 4.1), (65536, 3.1)]
    for hours in (LLAMA_HOURS, 2e4, 8e3, 1e3):
        for share, costs in ((0.0, COPIES), (0.8, BOTH), (0.8, BOTH | {"copy": 10.0})):
            check_rhythm(answers, probe, runs, hours, share, costs)
            check_rhythm(answers, probe, runs[::-1], hours, share, costs)
    check_rhythm(answers, probe, [(1000, 1.0)], 10.0, 0.0, COPIES)


# --- ranks ----------------------------------------------------------------------------------------

RUNS = {}  # the later stages read what the first one ran
ONE, EVEN = (((2, 2),),), (((2, 2), (1, 4)),)  # one stage
# (p, t, r, s), shapes by stage, cut, tied, gradients of 0, limit over the norm
DATA = [
    ((1, 1, 1, 1), ONE, (True,), None, False, 2.0),
    ((1, 1, 2, 1), EVEN, (True, True), None, False, 2.0),
    ((1, 1, 1, 2), EVEN, (True, True), None, False, 0.5),
    ((1, 1, 2, 2), (((2, 2), (3,)),), (True, True), None, False, 0.5),
]
PAIRS = ((4, 2), (3,), (1, 5)), ((4, 2), (2, 1, 2), ())
ONCE = [
    ((2, 1, 1, 1), PAIRS, (True, True, True), None, False, 0.5),
    ((2, 1, 1, 1), PAIRS, (True, True, True), 0, False, 0.5),
    ((1, 2, 1, 1), PAIRS[:1], (True, False, True), None, False, 0.5),
    ((1, 2, 1, 2), PAIRS[:1], (True, False, False), None, False, 0.9),
    ((2, 2, 1, 1), PAIRS, (False, True, False), 0, False, 0.9),
    ((2, 2, 1, 1), PAIRS, (True, True, False), 0, False, 0.5),
    ((1, 2, 1, 2), PAIRS[:1], (True, False, False), None, True, 0.0),
]
WIDER = ((8, 8), (16, 4), (8, 7)), ((8, 8), (8, 8), (4, 7))
GRADED = [
    ((1, 1, 2, 2), WIDER[:1], (True, True, True), None, False, 0.5),
    ((1, 2, 1, 2), WIDER[:1], (True, True, False), None, False, 0.5),
    ((2, 1, 1, 2), WIDER, (True, True, True), 0, False, 2.0),
]


def ran(answers, dice):
    """What every rank measured, case by case."""
    needs("torch")
    cases = [*DATA, *ONCE, *GRADED]
    if "ran" not in RUNS:
        RUNS["ran"] = answers.probe.clipped(cases, dice.randrange(1 << 30))
    return list(zip(cases, RUNS["ran"], strict=True))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    read="What is left over: m",
    hint="divide by all tokens; squares of all shards make the norm, those of copies none",
)
def test_clipped(answers, probe, dice):
    """Clipped: mean and norm over copies and shards, on up to four ranks."""
    for case, ranks in ran(answers, dice)[: len(DATA)]:
        probe.check_clipped(case, ranks)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=120,
    after="test_clipped",
    read=TRAINER,
    hint="what tensor ranks have whole is a sum over them, and the embedding over two stages; of"
    " n ranks that have a parameter each gives the norm one n-th of its squares; nothing clips a"
    " norm of 0",
)
def test_clipped_once(answers, probe, dice):
    """Clipped: stages, tensor ranks, and an embedding that two stages have."""
    for case, ranks in ran(answers, dice):
        probe.check_clipped(case, ranks)


@pytest.mark.points(
    2,
    tier="processes",
    seconds=120,
    after="test_clipped_once",
    read=TRAINER,
    hint="scatter first: every other sum is then of a shard, and only of what needs it",
)
def test_clipped_bytes(answers, probe, dice):
    """Clipped: whole gradients travel within the shards alone, and shards among copies."""
    for case, ranks in ran(answers, dice):
        probe.check_bytes(case, ranks)
