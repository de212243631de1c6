"""The visible tests: 15.5 of the 20 points. Each exercise first has to be correct, then to stay
within its bytes. The cases come smallest first."""

import importlib.util

import pytest

from weft.grade import at_most, expect

COST, EDGES = "The headline, taken apart", "Three forms, and the two edges of a chunk"
NORM, TURN = "The norm makes divisors free", "The rotation: positions without a softmax"
IDEA, LAYER = "The idea: each head has a half-life", "The layer, and the model"


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: needs {name}")


# --- the length at which states are smaller -------------------------------------------------------

NAMES = "layers", "full", "window", "kv", "width", "size", "block", "heads", "K", "V", "state"
RETNET = 16, 256, 512, 4  # RetNet 6.7B's states in each of its 32 layers


def check_crossing(answers, probe, sizes, hint=None, **more):
    """Fail unless the length is that of counting token by token."""
    case = ", ".join(f"{name}={n}" for name, n in [*zip(NAMES, sizes, strict=True), *more.items()])
    right = probe.crossed(*sizes, **({"ranks": 1, "moved": False} | more))
    expect(f"crossing({case})", answers.crossing(*sizes, **more), right, hint=hint)


@pytest.mark.points(
    1,
    read=COST,
    hint="keys and values; of a block that is started, every slot counts; and more is not as much",
)
def test_crossing(answers, probe):
    """Crossing: the fewest tokens whose cache takes more than the states, in whole blocks."""
    for sizes in (
        (1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1),
        (1, 1, 0, 1, 1, 1, 1, 1, 2, 2, 1),
        (1, 1, 0, 1, 1, 1, 4, 1, 2, 3, 1),
        (1, 1, 0, 1, 1, 2, 4, 2, 2, 3, 4),
        (2, 2, 0, 2, 4, 2, 16, 4, 8, 16, 4),
        (32, 32, 0, 32, 128, 2, 16, *RETNET),
        (32, 32, 0, 8, 128, 2, 16, *RETNET),
    ):
        check_crossing(answers, probe, sizes)


@pytest.mark.points(
    1,
    after="test_crossing",
    read=COST,
    hint="a layer with a window keeps the smaller of T and the window; with no full layer it ends",
)
def test_crossing_window(answers, probe):
    """Crossing: with windows in some layers, or in all, where it may never come."""
    for sizes in (
        (1, 0, 1, 1, 1, 1, 1, 1, 1, 2, 1),
        (1, 0, 3, 1, 1, 1, 4, 1, 2, 2, 1),
        (2, 1, 3, 1, 1, 1, 1, 2, 2, 2, 1),
        (3, 1, 5, 2, 2, 2, 4, 4, 4, 4, 4),
        (32, 4, 1024, 8, 128, 2, 16, *RETNET),
        (32, 0, 1024, 8, 128, 2, 16, *RETNET),
        (32, 0, 4096, 8, 128, 2, 16, *RETNET),
    ):
        check_crossing(answers, probe, sizes)


READS = "a state is read and written, a cache read and one token of it written"
OWN = "a rank with no kv head of its own has one that another has too"


@pytest.mark.points(1, after="test_crossing_window", read=COST, hint=READS)
def test_crossing_moved(answers, probe):
    """Crossing: over several ranks, and by what a step moves."""
    for sizes, ranks in (
        ((1, 1, 0, 1, 1, 1, 1, 1, 2, 2, 1), 1),
        ((2, 1, 3, 2, 1, 1, 4, 4, 2, 2, 1), 2),
        ((2, 2, 0, 2, 1, 1, 4, 8, 2, 2, 4), 4),
        ((3, 1, 9, 3, 2, 2, 4, 8, 4, 4, 4), 2),
        ((32, 4, 2048, 8, 128, 2, 16, *RETNET), 1),
        ((32, 32, 0, 8, 128, 2, 16, *RETNET), 16),
    ):
        check_crossing(answers, probe, sizes, OWN, ranks=ranks)
        check_crossing(answers, probe, sizes, READS, ranks=ranks, moved=True)


# --- a weighted mean ------------------------------------------------------------------------------

DECAYS = [-0.5, -0.03, -0.004]  # logarithms


@pytest.mark.points(
    1,
    tier="chip",
    read=NORM,
    hint="the mean times the n of its tokens is the state; t counts from the sequence's first",
)
def test_averaged(answers, probe):
    """Mean: right from the first token on, in pieces of any length."""
    needs("torch")
    for lengths in ([1], [2], [3, 1], [7, 1, 1, 12, 2]):
        for logs in ([0.0], DECAYS):
            case = f"averaged, a sequence in pieces of {lengths}, {logs=}"
            probe.told(case, answers.probe.averaged(lengths, 0, logs, 2, 3)["wrong"])


@pytest.mark.points(
    0.5,
    tier="chip",
    after="test_averaged",
    read=NORM,
    hint="the sum of all tokens is beyond fp16, whose largest is 65504; only the mean is not",
)
def test_averaged_range(answers, probe):
    """Mean: where the state itself is far beyond fp16."""
    needs("torch")
    for lengths, seen, loud in (([1], 300, 20.0), ([5, 1], 5000, 60.0)):
        logs = [-(2.0**-6), -(2.0**-12), 0.0]
        case = f"averaged, {logs=}, numbers of about {loud**2:g} in the mean"
        probe.told(case, answers.probe.averaged(lengths, seen, logs, 4, 3, loud)["wrong"])


@pytest.mark.points(
    0.5,
    tier="chip",
    after="test_averaged",
    read=IDEA,
    hint="1 - exp(x) of a small x has no digits left: torch.expm1(x) has all of them",
)
def test_averaged_slow(answers, probe):
    """Mean: heads that hardly forget, or never."""
    needs("torch")
    logs = [-(2.0**-16), -(2.0**-20), -(2.0**-26), -(2.0**-40), 0.0]
    for lengths, seen in (([2], 0), ([9], 40), ([3, 20], 30000)):
        for log in logs:
            case = f"averaged, logs={[log]}"
            probe.told(case, answers.probe.averaged(lengths, seen, [log], 2, 2)["wrong"])


# --- a state that turns ---------------------------------------------------------------------------

GRADED = 1, [256], 64, 64, 32
MIB = 1 << 20


def ran(answers, sizes, **more):
    """The case in words, and what the probe measured."""
    H, pieces, K, V, chunk = sizes
    case = f"turning: {H=}, pieces of {pieces}, {K=}, {V=}, {chunk=}"
    return case, answers.probe.turning(*sizes, **more)


@pytest.mark.points(
    1,
    tier="chip",
    read=EDGES,
    hint="query i is i + 1 turns and fades from the state; turn keys as in the score, then bring "
    "the state to the last token",
)
def test_turning(answers, probe):
    """Turning: o and the state are right from a state of nothing, whatever the chunk."""
    needs("torch")
    for sizes in (
        (1, [1], 2, 1, 1),
        (1, [2], 2, 1, 1),
        (1, [2], 2, 2, 2),
        (2, [6], 4, 3, 3),
        (3, [7], 6, 2, 7),
    ):
        case, report = ran(answers, sizes, before=0)
        probe.told(case, report["wrong"])


@pytest.mark.points(
    1,
    tier="chip",
    after="test_turning",
    read=TURN,
    hint="the state stands at the last token before: turn it back by as many tokens as a chunk has",
)
def test_turning_state(answers, probe):
    """Turning: a sequence in pieces of any length, whose state is handed on and left as it is."""
    needs("torch")
    for sizes in (
        (1, [1], 2, 1, 1),
        (2, [2, 1], 2, 2, 4),
        (2, [5], 4, 3, 3),
        (3, [7, 1, 1, 8], 6, 4, 4),
    ):
        case, report = ran(answers, sizes)
        probe.told(case, report["wrong"])


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_turning_state",
    read=EDGES,
    hint="no table is larger than chunk by chunk",
)
def test_turning_memory(answers, probe):
    """Turning: 1.5 MiB alive at once, where one table of all tokens is 512 KiB."""
    needs("torch")
    case, report = ran(answers, GRADED)
    probe.told(case, report["wrong"])
    at_most(f"{case}: bytes alive", report["alive"], 1.5 * MIB)


@pytest.mark.points(
    0.5,
    tier="chip",
    seconds=60,
    after="test_turning_memory",
    read=EDGES,
    hint="a state is turned, faded and written once for each chunk, not for each token",
)
def test_turning_bytes(answers, probe):
    """Turning: operations write 12 MiB at most, where a state for each token is 8."""
    needs("torch")
    case, report = ran(answers, GRADED)
    probe.told(case, report["wrong"])
    at_most(f"{case}: bytes written", report["written"], 12 * MIB)


# --- gradients ------------------------------------------------------------------------------------

SMALL = [  # H, T, K, V, chunk
    (1, 1, 1, 1, 1),
    (1, 2, 1, 1, 1),
    (1, 3, 2, 1, 3),
    (2, 4, 2, 3, 2),
    (2, 7, 3, 2, 3),
]
GRADED_BACK = 2, 256, 8, 8, 32


def check_backward(answers, probe, sizes, names, state=True):
    """The case in words and the report, after the gradients of these names were looked at."""
    H, T, K, V, chunk = sizes
    report = answers.probe.backward(*sizes, state)
    case = f"backward: {H=}, {T=}, {K=}, {V=}, {chunk=}{'' if state else ', S and d_last zeros'}"
    for name in names:
        probe.told(case, report["wrong"][name])
    return case, report


@pytest.mark.points(
    1.5,
    tier="chip",
    read=EDGES,
    hint="dq goes forward as o does; dk and dv go backward, with the gradient of the state",
)
def test_backward(answers, probe):
    """Backward: dq, dk and dv without a state before and a gradient behind."""
    needs("torch")
    for sizes in SMALL:
        check_backward(answers, probe, sizes, ("dq", "dk", "dv"), state=False)


@pytest.mark.points(
    1,
    tier="chip",
    after="test_backward",
    read=EDGES,
    hint="S reaches query i by decay^(i + 1), d_last key j by decay^(T - 1 - j), and dS by decay^T",
)
def test_backward_state(answers, probe):
    """Backward: with a state before and a gradient behind, dS too."""
    needs("torch")
    for sizes in SMALL:
        check_backward(answers, probe, sizes, ("dq", "dk", "dv", "dS"))


@pytest.mark.points(
    1,
    tier="chip",
    after="test_backward_state",
    read=IDEA,
    hint="decay^n brings n decay^n, and n is the reader's position less the writer's: take q . dq "
    "and k . dk times their positions, and what reaches the last state",
)
def test_backward_log(answers, probe):
    """Backward: the gradient of the decays' logarithms."""
    needs("torch")
    for sizes in SMALL:
        check_backward(answers, probe, sizes, ("d_log",))


@pytest.mark.points(
    0.5,
    tier="chip",
    seconds=60,
    after="test_backward_state",
    read=EDGES,
    hint="chunks again: compute a chunk's table twice rather than keep it",
)
def test_backward_memory(answers, probe):
    """Backward: 512 KiB alive at once, where one table of all tokens is 512 KiB a head."""
    needs("torch")
    case, report = check_backward(answers, probe, GRADED_BACK, ("dq", "dk", "dv", "dS"))
    at_most(f"{case}: bytes alive", report["alive"], 512 * 1024)


# --- a kernel -------------------------------------------------------------------------------------


def stepped(answers, counts, fresh, *sizes, **more):
    """As `ran`, for the kernel."""
    H, K, V, BLOCK = sizes
    case = f"step: places with {counts} tokens, fresh: {fresh}, {H=}, {K=}, {V=}, {BLOCK=}"
    return case, answers.probe.step(counts, fresh, *sizes, **more)


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    read=IDEA,
    hint="fade, write, then read; each head has its own decay, each sequence its own slot",
)
def test_step(answers, probe):
    """Kernel: one token for each sequence: o and the states are right."""
    needs("torch", "triton")
    for case in (([1], [], 1, 1, 1, 1), ([1], [], 2, 2, 4, 4), ([1, 1, 1], [], 2, 4, 4, 2)):
        told, report = stepped(answers, *case)
        probe.told(told, report["wrong"])


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_step",
    read=LAYER,
    hint="0 times NaN is NaN: do not load a fresh state; a place without tokens does nothing",
)
def test_step_places(answers, probe):
    """Kernel: sequences with several tokens, fresh ones, and empty places."""
    needs("torch", "triton")
    for case in (
        ([2], [], 1, 2, 2, 2),
        ([1], [0], 1, 2, 2, 2),
        ([0, 1], [], 1, 2, 2, 2),
        ([3, 0, 1, 5], [2], 2, 2, 4, 2),
        ([1, 2, 0], [0, 1, 2], 3, 4, 8, 4),
    ):
        told, report = stepped(answers, *case)
        probe.told(told, report["wrong"])


@pytest.mark.points(
    1,
    tier="chip",
    seconds=60,
    after="test_step_places",
    read=COST,
    hint="the state stays in the program for all tokens; a fresh one is not loaded",
)
def test_step_moves(answers, probe):
    """Kernel: a state is read and written once, whatever its tokens are, and nobody else's."""
    needs("torch", "triton")
    for case in (
        ([1], [], 1, 2, 2, 2),
        ([2, 1], [1], 1, 2, 2, 1),
        ([3, 0, 1, 4], [2], 2, 2, 4, 2),
    ):
        told, report = stepped(answers, *case)
        probe.told(told, report["wrong"])
        probe.check_moved(told, report, case[1], case[4] // case[5])
