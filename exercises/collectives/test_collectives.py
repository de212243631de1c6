"""The visible tests: 16 of the 20 points. Each exercise first has to be correct, then to stay
within its bytes, then to be quick. The cases come smallest first."""

import importlib.util

import pytest

from weft.plan.collectives import BOXES, NVLS, PORT, PROTOCOLS, RING_HOPS, WIRE
from weft.plan.collectives.nccl import SWITCHED
from weft.plan.collectives.price import POSTED

TREES, RAILS = "Trees", "Nodes and rails"
EVERYONE = "All-to-all is a problem of its own"
LIST = "A collective is a list of steps"
COST, SET = (
    "How NCCL sends: protocols, channels, algorithms",
    "When to set what, and a design problem",
)
SYMMETRIC = "Without messages: symmetric memory and copy engines"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- an all-gather --------------------------------------------------------------------------------

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 13]


@pytest.mark.points(
    1, read=LIST, hint="send on what has come, too, but never a chunk that the other one has"
)
def test_gather(answers, probe):
    """Gather: every rank ends with all chunks, and nobody is sent one that it has."""
    for n in SIZES:
        probe.gathered(n, answers.gather(n))


@pytest.mark.points(
    1,
    after="test_gather",
    read=TREES,
    hint="as many chunks in a message as its source has; the last step takes what is left",
)
def test_gather_steps(answers, probe):
    """Gather: log2 n steps, rounded up, with one partner each way."""
    for n in SIZES:
        probe.check_gather_steps(n, probe.gathered(n, answers.gather(n)))


@pytest.mark.points(
    1,
    after="test_gather_steps",
    read=TREES,
    hint="a message is larger the later it is: when should it travel far?",
)
def test_gather_far(answers, probe):
    """Gather: a message's chunks times its places are less than n."""
    for n in SIZES:
        probe.check_far(n, probe.gathered(n, answers.gather(n)))


# --- an all-to-all --------------------------------------------------------------------------------

NODES = [(1, 1), (1, 3), (2, 1), (2, 2), (3, 2), (2, 3), (4, 2), (3, 4)]


@pytest.mark.points(1, read=EVERYONE, hint="chunk s n + t ends with rank t, whatever way it takes")
def test_swap(answers, probe):
    """Swap: every rank ends with what each has for it."""
    for nodes, local in NODES:
        probe.swapped(nodes, local, answers.swap(nodes, local))


@pytest.mark.points(
    1,
    after="test_swap",
    read=RAILS,
    hint="what several ranks of a node have for a rank of another goes as one message, over its"
    " rail; each chunk once over NVLink at most, and once over the network",
)
def test_swap_rails(answers, probe):
    """Swap: few messages, each on its rail, and no chunk on detours."""
    for nodes, local in NODES:
        probe.check_rails(nodes, local, probe.swapped(nodes, local, answers.swap(nodes, local)))


@pytest.mark.points(
    1,
    after="test_swap_rails",
    read=EVERYONE,
    hint="in a step everybody sends to the rank as many places on, so no two send to the same",
)
def test_swap_steps(answers, probe):
    """Swap: local - 1 + nodes - 1 steps, with one partner each way."""
    for nodes, local in NODES:
        steps = probe.swapped(nodes, local, answers.swap(nodes, local))
        probe.check_swap_steps(nodes, local, steps)


# --- on real ranks --------------------------------------------------------------------------------

RUNS = {}  # what the ranks measured: the later tests read what the first one ran
CHUNKS = [(3,), (2, 2), (1, 1, 1), (2, 2, 2, 2), (1, 1, 1, 1, 1)]
UNEQUAL = [(1, 2), (0, 3, 1), (1, 2, 3, 4), (5, 0, 0, 2)]
GRADED = (200, 201, 199, 200, 200)
ALIVE = 6  # times the longest chunk


def ran(answers, dice):
    """What every rank measured, case by case."""
    needs("torch")
    cases = [*CHUNKS, *UNEQUAL, GRADED]
    if not RUNS:
        RUNS["ring"] = answers.probe.both_ways(cases, dice.randrange(1 << 30))
    return list(zip(cases, RUNS["ring"], strict=True))


def ring(hint, **more):
    """The marks that the tests on real ranks share."""
    more |= {"tier": "processes", "seconds": 60, "read": LIST, "hint": hint}
    return pytest.mark.points(1, **more)


@ring("with the first call, whose chunks go right and whose left? Those that come are others'")
def test_both_ways(answers, probe, dice):
    """Both ways: on real ranks, each gets its sum, and its own tensor stays as it was."""
    for sizes, ranks in ran(answers, dice):
        probe.check_sum(sizes, ranks)


@ring("add what you have to what comes, and send on the sum alone", after="test_both_ways")
def test_both_ways_bytes(answers, probe, dice):
    """Both ways: each rank sends each chunk but its own once."""
    for sizes, ranks in ran(answers, dice):
        probe.check_sent(sizes, ranks)


@ring("half of the ranks' summands come from one side", after="test_both_ways_bytes")
def test_both_ways_calls(answers, probe, dice):
    """Both ways: n // 2 calls, so no sum travels further than half round."""
    for sizes, ranks in ran(answers, dice):
        probe.check_calls(sizes, ranks)


@ring(
    "a copy of the whole tensor is n chunks; what has gone counts for as long as a name holds it:"
    " add into what came",
    after="test_both_ways_calls",
)
def test_both_ways_alive(answers, probe, dice):
    """Both ways: no more alive than what comes, what goes, and their sums."""
    sizes, ranks = ran(answers, dice)[-1]
    probe.check_alive(sizes, ranks, ALIVE)


# --- buckets --------------------------------------------------------------------------------------


def protocols(switch=True):
    """What NCCL's cost model has for H100s on more than two nodes, with CPUs by Intel."""
    found = {}
    for name, kind in PROTOCOLS.items():
        inside, outside = RING_HOPS[name]
        found[name] = {"share": kind.share, "most": kind.most[2]}
        found[name]["Ring"] = kind.start[0], max(inside, POSTED[name]), outside
        found[name]["Tree"] = kind.start[1], *kind.hop
    if switch:
        found["Simple"]["NVLS"] = NVLS, 0.0, SWITCHED
    return found


def h100(nodes, switch=True, registered=False):
    """Nodes of eight H100s; with registered buffers the switches need four SMs."""
    taken = {"Ring": 16, "Tree": 32, "NVLS": 4 if registered else 16}
    box = BOXES["dgx-h100"]
    found = {"nodes": nodes, "gpus": box.gpus, "wire": WIRE, "port": PORT}
    return found | {"sms": box.chip.sms, "taken": taken, "protocols": protocols(switch)}


def model(layers, width, hidden, kv, words, tokens, matrices=3, tied=False):
    """Gradients in bf16 of the head, the layers from the last to the first, and the embedding.

    Backward takes 4 FLOPs for a parameter and a token, at half of an H100's peak; it is counted
    without attention's scores. Where head and embedding are one, so is their gradient.
    """
    rate = BOXES["dgx-h100"].chip.rate("bf16") / 2
    table, layer = words * width, width * (2 * width + 2 * kv + matrices * hidden)
    head, one = (4 * size * tokens / rate for size in (table, layer))
    grads = [(2 * layer, one)] * layers + [(2 * table, 0.0)]
    if tied:
        return [(2 * layer, one + head), *grads[1:]]
    return [(2 * table, head), *grads]


LLAMA_3 = {"layers": 32, "width": 4096, "hidden": 14336, "kv": 1024, "words": 128256}
LLAMA_2 = {"layers": 32, "width": 4096, "hidden": 11008, "kv": 4096, "words": 32000}
GPT_2 = {"layers": 48, "width": 1600, "hidden": 6400, "kv": 1600, "words": 50257}
GPT_2 |= {"matrices": 2, "tied": True}
REAL = [  # a model, tokens, nodes, switch, registered
    (LLAMA_3, 4096, 8, True, False),
    (LLAMA_3, 8192, 32, False, False),
    (LLAMA_3, 1024, 128, False, False),
    (LLAMA_2, 2048, 8, True, True),
    (LLAMA_2, 4096, 128, False, False),
    (GPT_2, 1024, 32, False, False),
    (GPT_2, 2048, 128, True, False),
    (GPT_2, 4096, 8, True, True),
    (GPT_2, 8192, 128, False, False),
]


def made(nodes=4, gpus=2, taken=(0, 0, 0), port=50.0, start=1.0):
    """A small cluster with three algorithms and two protocols."""
    low = {"share": 0.5, "most": 60.0, "Ring": (start, 0.125, 0.5), "Tree": (start, 0.25, 0.5)}
    high = {"share": 1.0, "most": 90.0, "Ring": (2 * start, 0.5, 2.0), "Tree": (start, 1.0, 2.0)}
    high |= {"NVLS": (3 * start, 0.25, 1.5)}
    found = {"nodes": nodes, "gpus": gpus, "wire": 100.0, "port": port, "sms": 8}
    taken = dict(zip(("Ring", "Tree", "NVLS"), taken, strict=True))
    return found | {"taken": taken, "protocols": {"low": low, "high": high}}


def check_made(answers, probe, grads, **sizes):
    """Check `buckets` on a small cluster; what is told can be made again with this file."""
    told = ", ".join(f"{name}={value}" for name, value in sizes.items())
    cluster = made(**sizes)
    got = answers.buckets(made(**sizes), list(grads))
    probe.check_buckets(f"buckets(made({told}), {grads})", cluster, grads, got)


@pytest.mark.points(
    1,
    read=COST,
    hint="count the hops of one chunk's way, and look which rate bounds it: NVLink's, all ports', a"
    " protocol's most",
)
def test_buckets_call(answers, probe):
    """Buckets: one gradient, so one call; which algorithm, which protocol, and its seconds."""
    for nodes, gpus in ((2, 2), (2, 3), (4, 2), (8, 4), (64, 8)):
        for nbytes in (1.0, 100.0, 1000.0, 100000.0):
            for port in (10.0, 30.0, 200.0):
                grads = [(nbytes, 1.0)]
                check_made(answers, probe, grads, nodes=nodes, gpus=gpus, port=port)


@pytest.mark.points(
    1,
    after="test_buckets_call",
    read=SET,
    hint="a call waits for its last gradient and for the call before it; the last bucket is smaller"
    " if k does not divide",
)
def test_buckets_line(answers, probe):
    """Buckets: several gradients, whose calls take no SMs."""
    for grads in (
        [(100.0, 5.0), (100.0, 5.0)],
        [(10.0, 1.0)] * 5,
        [(100.0, 6.0)] * 7,
        [(300.0, 10.0)] * 6 + [(900.0, 0.0)],
        [(900.0, 2.0), *[(50.0, 20.0)] * 4, (500.0, 0.0)],
        [(900.0, 200.0), *[(50.0, 1.0)] * 9],
    ):
        for start in (0.0, 1.0, 20.0):
            check_made(answers, probe, grads, start=start)


@pytest.mark.points(
    1,
    after="test_buckets_line",
    seconds=30,
    read=SET,
    hint="what is done beside a call is done slower, and only while it runs; another may follow it"
    " at once",
)
def test_buckets_taken(answers, probe):
    """Buckets: calls that take SMs; then Llama 2 and 3 and GPT-2 on nodes of H100s."""
    for taken in ((4, 4, 4), (1, 4, 2), (6, 2, 1)):
        for grads in ([(100.0, 5.0)], [(100.0, 50.0)] * 2, [(100.0, 6.0)] * 7):
            check_made(answers, probe, grads, taken=taken)
        check_made(answers, probe, [(300.0, 1.0)] * 3 + [(5.0, 40.0)], taken=taken)  # calls queue
    for one, tokens, nodes, switch, registered in REAL:
        told = f"buckets: {one['layers']} layers of width {one['width']}, {tokens} tokens"
        told += f", {nodes} nodes, {switch=}, {registered=}"
        grads = model(tokens=tokens, **one)
        cluster = h100(nodes, switch, registered)
        got = answers.buckets(h100(nodes, switch, registered), list(grads))
        probe.check_buckets(told, cluster, grads, got)


# --- a kernel -------------------------------------------------------------------------------------

PLAIN = [(1, 1, 1, 0, 1, 1, 1), (2, 2, 4, 0, 2, 2, 4), (3, 4, 4, 2, 2, 1, 4), (2, 6, 8, 0, 6, 2, 8)]
EDGES = [
    (1, 3, 3, 1, 1, 2, 4),
    (2, 5, 3, 1, 3, 2, 4),
    (3, 7, 5, 4, 3, 4, 8),
    (5, 4, 6, 0, 3, 2, 16),
]


def ran_normed(answers, sizes, large=1.0):
    """A case in words, and what running it showed; sizes: n, T, D, first, count, ROWS, COLUMNS."""
    n, T, D, first, count, rows, columns = sizes
    case = f"normed: {n=}, {T=}, {D=}, {first=}, {count=}, ROWS={rows}, COLUMNS={columns}"
    case += f", summands of about {large:g}" if large != 1 else ""
    return case, answers.probe.normed(*sizes, large)


def chip(hint, **more):
    """The marks that the kernel's tests share."""
    more |= {"tier": "chip", "seconds": 60, "read": SYMMETRIC, "hint": hint}
    return pytest.mark.points(1, **more)


@chip("count on paper, for two ranks and one token, what is added, divided and multiplied")
def test_normed(answers, probe):
    """Kernel: sums of tokens that fill their tiles, and their norm on all ranks."""
    needs("torch", "triton")
    for large in (1.0, 40.0):
        for sizes in PLAIN:
            probe.check_normed(*ran_normed(answers, sizes, large), plain=True)


@chip("a tile may reach beyond the row, and beyond this rank's tokens", after="test_normed")
def test_normed_edges(answers, probe):
    """Kernel: rows that are no power of two, and tiles that hold others' tokens."""
    needs("torch", "triton")
    for sizes in EDGES:
        probe.check_normed(*ran_normed(answers, sizes))


@chip("what has been loaded stays in the tile until the norm is made", after="test_normed_edges")
def test_normed_loads(answers, probe):
    """Kernel: everything loaded and stored once, and nothing of other ranks."""
    needs("torch", "triton")
    for sizes in (*PLAIN, *EDGES):
        probe.check_moved(*ran_normed(answers, sizes), *sizes[:5])
