"""The visible tests: 16 of the 20 points. Each exercise first has to be correct, then to stay
within its bytes, then to be quick. The cases come smallest first."""

import importlib.util

import pytest

from weft.grade import WrongAnswer, at_most, expect
from weft.plan.collectives import hierarchical_all_reduce, seconds
from weft.plan.hardware import Link

SIZES = [1, 2, 3, 4, 5, 8]
NODES = [(1, 1), (1, 3), (2, 1), (2, 2), (3, 2), (2, 3), (3, 4)]
RING, TREE, NESTED = "A collective is a list of steps", "Trees", "Nodes and rails"
PRICE, ACT = "Trees", RING


# --- reduce-scatter -------------------------------------------------------------------------------


@pytest.mark.points(
    1, read=RING, hint="chunk r has to pass through every rank, and through rank r last"
)
def test_reduce_scatter_sums(answers, probe):
    """Reduce-scatter: rank r ends with everybody's share of chunk r, each once."""
    for n in SIZES:
        probe.as_steps(f"reduce_scatter({n})", answers.reduce_scatter(n), "reduce_scatter", n, n)


@pytest.mark.points(
    1, after="test_reduce_scatter_sums", read=RING, hint="send on the sum so far, and nothing else"
)
def test_reduce_scatter_bytes(answers, probe):
    """Reduce-scatter: each rank sends n - 1 chunks, all to its right neighbour."""
    for n in SIZES:
        case = f"reduce_scatter({n})"
        steps = probe.as_steps(case, answers.reduce_scatter(n), "reduce_scatter", n, n)
        probe.to_the_right(case, steps)
        for r, count in enumerate(probe.sends_by_rank(steps)):
            expect(f"{case}: chunks sent by rank {r}", count, n - 1)


@pytest.mark.points(
    1,
    after="test_reduce_scatter_bytes",
    read=RING,
    hint="all ranks send in every step, each another chunk",
)
def test_reduce_scatter_steps(answers, probe):
    """Reduce-scatter: n - 1 steps, in each of them one chunk from every rank."""
    for n in SIZES:
        steps = answers.reduce_scatter(n)
        expect(f"reduce_scatter({n}): number of steps", len(steps), n - 1)


# --- all-reduce -----------------------------------------------------------------------------------


@pytest.mark.points(1, read=RING, hint="first a reduce-scatter, then the sums go round as copies")
def test_all_reduce_sums(answers, probe):
    """All-reduce: every rank ends with everybody's share of every chunk, each once."""
    for n in SIZES:
        probe.as_steps(f"all_reduce({n})", answers.all_reduce(n), "all_reduce", n, n)


@pytest.mark.points(
    1,
    after="test_all_reduce_sums",
    read=RING,
    hint="a rank sends n - 1 chunks that are added, and n - 1 that are copied",
)
def test_all_reduce_bytes(answers, probe):
    """All-reduce: each rank sends 2 (n - 1) chunks of n, all to its right neighbour."""
    for n in SIZES:
        case = f"all_reduce({n})"
        steps = probe.as_steps(case, answers.all_reduce(n), "all_reduce", n, n)
        probe.to_the_right(case, steps)
        for r, count in enumerate(probe.sends_by_rank(steps)):
            expect(f"{case}: chunks sent by rank {r}", count, 2 * (n - 1))


@pytest.mark.points(
    1, after="test_all_reduce_bytes", read=RING, hint="no rank has to wait for another's turn"
)
def test_all_reduce_steps(answers):
    """All-reduce: at most 2 (n - 1) steps."""
    for n in SIZES:  # two ranks may swap all they have in one
        at_most(f"all_reduce({n}): number of steps", len(answers.all_reduce(n)), 2 * (n - 1))


# --- broadcast ------------------------------------------------------------------------------------


@pytest.mark.points(1, read=TREE, hint="ranks are counted from the root on, modulo n")
def test_broadcast_reaches_all(answers, probe):
    """Broadcast: all ranks end with the root's chunk, and nobody is sent it twice."""
    for n in SIZES:
        for root in sorted({0, n // 2, n - 1}):
            case = f"broadcast({n}, root={root})"
            steps = probe.as_steps(case, answers.broadcast(n, root), "broadcast", n, 1, root)
            expect(f"{case}: messages", sum(map(len, steps)), n - 1)


@pytest.mark.points(
    1,
    after="test_broadcast_reaches_all",
    read=TREE,
    hint="whoever has it tells one more in every step",
)
def test_broadcast_steps(answers, probe):
    """Broadcast: as many steps as it takes to double from 1 to n, each rank telling one."""
    for n in SIZES:
        case = f"broadcast({n}, root={n - 1})"
        steps = probe.as_steps(case, answers.broadcast(n, n - 1), "broadcast", n, 1, n - 1)
        probe.one_at_a_time(case, steps)
        expect(f"{case}: number of steps", len(steps), (n - 1).bit_length())


# --- nodes ----------------------------------------------------------------------------------------


@pytest.mark.points(
    1, read=NESTED, hint="share i of a node has as many chunks as there are nodes: i * nodes + j"
)
def test_hierarchical_sums(answers, probe):
    """Nodes: every rank ends with everybody's share of every chunk, each once."""
    for nodes, local in NODES:
        case, n = f"hierarchical({nodes}, {local})", nodes * local
        probe.as_steps(case, answers.hierarchical(nodes, local), "all_reduce", n, n)


@pytest.mark.points(
    1,
    after="test_hierarchical_sums",
    read=NESTED,
    hint="add up within the nodes first: each rank then has one share to take to the others",
)
def test_hierarchical_between(answers, probe):
    """Nodes: a rank sends 2 (nodes - 1) of the chunks to other nodes."""
    for nodes, local in NODES:
        case, n = f"hierarchical({nodes}, {local})", nodes * local
        steps = probe.as_steps(case, answers.hierarchical(nodes, local), "all_reduce", n, n)
        out = probe.sends_by_rank(steps, lambda s: s.source // local != s.target // local)  # noqa: B023
        for r, count in enumerate(out):
            expect(f"{case}: chunks that rank {r} sends to other nodes", count, 2 * (nodes - 1))


@pytest.mark.points(
    1,
    after="test_hierarchical_between",
    read=NESTED,
    hint="all nodes at once, then all rails at once, then all nodes again",
)
def test_hierarchical_steps(answers, probe):
    """Nodes: at most 2 (local - 1) + 2 (nodes - 1) steps, each rank sending to one other."""
    for nodes, local in NODES:
        case, n = f"hierarchical({nodes}, {local})", nodes * local
        steps = probe.as_steps(case, answers.hierarchical(nodes, local), "all_reduce", n, n)
        probe.one_at_a_time(case, steps)
        # Rings take as many; halves that are swapped with further and further ranks, fewer.
        most = len(hierarchical_all_reduce(nodes, local))
        at_most(f"{case}: number of steps", len(steps), most)


# --- ring or tree ---------------------------------------------------------------------------------

LINKS = [Link("a", 1.0, 1.0), Link("b", 8.0, 0.25), Link("c", 50e9, 14e-6)]


def check_crossover(case, got, n, link):
    """Fail unless ring and tree take equally long there, or the ring always wins and it is 0."""
    if isinstance(got, bool) or not isinstance(got, int | float) or not got >= 0:
        raise WrongAnswer(f"{case}: expected a number of bytes, got {got!r}", "")
    ring, tree = (seconds("all_reduce", got, n, link, how) for how in ("ring", "tree"))
    expect(f"{case}: seconds by ring at {got:g} bytes", ring, tree, within=1e-9 * (ring + tree))


@pytest.mark.points(
    1, read=PRICE, hint="2 (n - 1) (latency + S / n / bandwidth) = 2 L (latency + S / bandwidth)"
)
def test_crossover(answers):
    """Crossover: at n a power of two, ring and tree take equally long there."""
    for n in (2, 4, 8, 64):
        for link in LINKS:
            case = f"crossover({n}, {link.latency}, {link.bandwidth})"
            check_crossover(case, answers.crossover(n, link.latency, link.bandwidth), n, link)


@pytest.mark.points(
    1,
    after="test_crossover",
    read=PRICE,
    hint="L is rounded up; one rank alone sends nothing, so the ring is never slower",
)
def test_crossover_odd(answers):
    """Crossover: at any n, one included."""
    for n in (1, 3, 5, 6, 7, 100):
        for link in LINKS:
            case = f"crossover({n}, {link.latency}, {link.bandwidth})"
            got = answers.crossover(n, link.latency, link.bandwidth)
            check_crossover(case, got, n, link)
            expect(f"{case}: is it 0", got == 0, n <= 3)


# --- on real ranks --------------------------------------------------------------------------------

RUNS = {}  # what the ranks measured, by test data: the later tests read what the first one ran
CASES = [
    (1, 5),
    (2, 1),
    (3, 2),
    (2, 7),
    (3, 7),
    (3, 300),
]  # the number of ranks, the tensor's length


def ran(answers, dice):
    """What every rank measured, case by case."""
    if not RUNS:
        RUNS["ring"] = answers.probe.on_ranks(CASES, dice.randrange(1 << 30))
    return zip(CASES, RUNS["ring"], strict=True)


def ring(hint, **more):
    """The marks that the tests on real ranks share."""
    more |= {"tier": "processes", "seconds": 60, "read": ACT, "hint": hint}
    return pytest.mark.points(1, **more)


@ring("what comes is the chunk before the one that you send: both sides know its length")
def test_run_ring(answers, probe, dice):
    """Ring: on real ranks, every rank gets the sum, and its own tensor stays as it was."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: needs torch")
    for case, ranks in ran(answers, dice):
        probe.check_sum(case, ranks)


@ring("2 (n - 1) / n of the tensor: never a whole one", after="test_run_ring")
def test_run_ring_bytes(answers, probe, dice):
    """Ring: each rank sends each chunk but its own, then each but its right neighbour's."""
    for case, ranks in ran(answers, dice):
        probe.check_sends(case, ranks)


@ring(
    "add into a chunk of the result in place; one tensor of the whole length is enough",
    after="test_run_ring_bytes",
)
def test_run_ring_memory(answers, probe, dice):
    """Ring: beside the result no rank has more than two chunks alive."""
    for case, ranks in ran(answers, dice):
        probe.check_alive(case, ranks)
