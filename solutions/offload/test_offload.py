"""The visible tests: 16 of the 20 points. Each exercise first has to be correct, then to stay
within its bytes, then to overlap. The cases come smallest first."""

import importlib.util

import pytest

from weft.grade import WrongAnswer, at_most, between, expect
from weft.plan.memory import MODELS, bandwidth_for, infinity
from weft.plan.offload import Node, placed, streamed

WHERE, RATE = "Where the bytes live", "Weights ahead of their layer"
STREAM = ACT = TILES = "NVMe: a stream through few buffers"
LEVELS = "device", "host", "disk"


def needs_torch():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: needs torch")


# --- places ---------------------------------------------------------------------------------------


def check_places(answers, params, strategy, d):
    held = placed(params, strategy, Node("any", d, 1, 1, 1, 1, 1))
    case, got = f"places({params}, {strategy!r}, {d})", answers.places(params, strategy, d)
    if not isinstance(got, dict) or set(got) != set(LEVELS):
        raise WrongAnswer(f"{case}: expected a dict of {', '.join(LEVELS)}, got {got!r}", "")
    for level in LEVELS:
        right = held[level].total / (d if level == "device" else 1)
        expect(f"{case}: {level}", got[level], right, within=1e-9 * params)


@pytest.mark.points(1, read=WHERE, hint="16 bytes in all, 2 of them weights and 2 gradients")
def test_places_alone(answers):
    """Places: one device and its host."""
    for params in (1, 1000, 13 * 10**9):
        for strategy in ("device", "offload", "infinity-disk"):
            check_places(answers, params, strategy, 1)


@pytest.mark.points(
    1,
    after="test_places_alone",
    read=WHERE,
    hint="what is dealt out lies once in the host, however many devices share it",
)
def test_places_dealt(answers):
    """Places: many devices share a host's memory and its disk."""
    for d in (2, 3, 16):
        for strategy in ("device", "offload", "infinity-disk"):
            check_places(answers, 1000, strategy, d)


# --- bandwidth ------------------------------------------------------------------------------------


def check_bandwidth(answers, batch, seq, share, peak):
    case = f"bandwidth({batch}, {seq}, {share}, {peak:g})"
    got = answers.bandwidth(batch, seq, share, peak)
    if not isinstance(got, list | tuple) or len(got) != 2:
        raise WrongAnswer(f"{case}: expected two rates, got {got!r}", "")
    one = infinity(MODELS["0.10T"], 1)  # 1024 tokens; any model will do, as it cancels
    for flow, rate in zip(("weights", "optimizer"), got, strict=True):
        right = bandwidth_for(one.intensities[flow] * batch * seq / 1024, share, peak)
        expect(f"{case}: {flow}", rate, right, within=1e-9 * right)


@pytest.mark.points(1, read=RATE, hint="at half of the peak, moving takes as long as computing")
def test_bandwidth_half(answers):
    """Bandwidth: for half of the peak."""
    for batch, seq in ((1, 1024), (3, 1024), (2, 777)):
        check_bandwidth(answers, batch, seq, 0.5, 70e12)


@pytest.mark.points(
    1,
    after="test_bandwidth_half",
    read=RATE,
    hint="share = compute time over compute time and moving time together; solve for the rate",
)
def test_bandwidth_share(answers):
    """Bandwidth: for any share of the peak."""
    for share in (0.9, 0.25, 0.99):
        check_bandwidth(answers, 2, 1024, share, 70e12)


# --- schedule -------------------------------------------------------------------------------------

SIZES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 2), (4, 3), (7, 2), (7, 3)]
COSTS = [(2, 3, 1), (1, 1, 1), (1, 5, 1), (3, 1, 2), (1, 2, 4)]


@pytest.mark.points(1, read=STREAM, hint="every piece is read, then computed on, then written")
def test_schedule_whole(answers, probe):
    """Schedule: every piece goes through everything once, in turn."""
    for pieces, buffers in SIZES:
        probe.as_order(f"schedule({pieces}, {buffers})", answers.schedule(pieces, buffers), pieces)


@pytest.mark.points(
    1,
    after="test_schedule_whole",
    read=STREAM,
    hint="read piece i only after piece i - buffers is written",
)
def test_schedule_buffers(answers, probe):
    """Schedule: never more pieces in memory than there are buffers."""
    for pieces, buffers in SIZES:
        case = f"schedule({pieces}, {buffers})"
        order = probe.as_order(case, answers.schedule(pieces, buffers), pieces)
        for times in COSTS:  # where a read takes long, fewer may be there at a time
            most = probe.played(order, times)[1]
            at_most(f"{case} with times {times}: pieces in memory", most, buffers)


@pytest.mark.points(
    1,
    after="test_schedule_buffers",
    read=STREAM,
    hint="ask for the next read before the write that has to wait for a compute",
)
def test_schedule_overlap(answers, probe):
    """Schedule: reads and writes go on while the processor computes."""
    for pieces, buffers in SIZES:
        case = f"schedule({pieces}, {buffers})"
        order = probe.as_order(case, answers.schedule(pieces, buffers), pieces)
        for times in COSTS:
            # Nobody says that no order is faster: the closed form is what has to be reached.
            right = streamed(pieces, *times, buffers).makespan
            at_most(f"{case} with times {times}: seconds", probe.played(order, times)[0], right)


# --- streaming Adam -------------------------------------------------------------------------------

RUNS = {}  # what was measured: the later stages read what the first one ran
CUTS = [[1], [3], [4, 4], [64, 64, 64], [50, 7, 33, 1, 60]]


def ran(answers, cut):
    if tuple(cut) not in RUNS:
        RUNS[tuple(cut)] = answers.probe.adam(cut, steps=3)
    return RUNS[tuple(cut)]


@pytest.mark.points(
    2,
    tier="processes",
    seconds=60,
    read=ACT,
    hint="divide both moments by 1 - beta ** step before you use them; keep them undivided",
)
def test_stream_adam(answers, probe):
    """Adam: three steps give torch.optim.Adam's weights and moments."""
    needs_torch()
    for cut in CUTS:
        probe.check(f"stream_adam, pieces of {cut}, 3 steps", ran(answers, cut))


@pytest.mark.points(
    1,
    tier="processes",
    seconds=60,
    after="test_stream_adam",
    read=ACT,
    hint="keep what you have read until it is written; gradients are never written",
)
def test_stream_adam_bytes(answers, probe):
    """Adam: a step reads four tensors of every piece once, and writes three."""
    needs_torch()
    for cut in CUTS:
        probe.once(f"stream_adam, pieces of {cut}", ran(answers, cut))


@pytest.mark.points(
    2,
    tier="processes",
    seconds=60,
    after="test_stream_adam",
    read=ACT,
    hint="let go of a piece before you read the one after the next; compute in place",
)
def test_stream_adam_memory(answers):
    """Adam: two pieces in memory, and two tensors for what lies between."""
    needs_torch()
    for cut in CUTS:
        pairs = list(zip(cut, [*cut[1:], 0], strict=True))
        # What lies between may be less than two tensors; both pieces are there in any case.
        least, most = (
            max(4 * (one + two) + spare * max(one, two) for one, two in pairs) for spare in (0, 2)
        )
        alive = ran(answers, cut)["alive"]
        between(f"stream_adam, pieces of {cut}: bytes alive", alive, 8 * least, 8 * most + 64)


@pytest.mark.points(
    1,
    tier="processes",
    seconds=60,
    after="test_stream_adam_memory",
    read=ACT,
    hint="prefetch all four tensors of the next piece as soon as you have this one",
)
def test_stream_adam_ahead(answers, probe):
    """Adam: while a piece is computed on, the next one is on its way."""
    needs_torch()
    for cut in CUTS:
        probe.on_its_way(f"stream_adam, pieces of {cut}", ran(answers, cut))


# --- tiles ----------------------------------------------------------------------------------------

TILED = [(1, 1, 1, 1), (2, 3, 4, 2), (3, 4, 8, 4), (3, 2, 7, 3), (5, 6, 40, 5)]


def tiled(answers, case):
    if case not in RUNS:
        RUNS[case] = answers.probe.tiled(*case)
    return RUNS[case]


def named(case):
    tokens, inputs, outputs, tiles = case
    return f"tiled_backward, x [{tokens}, {inputs}], {outputs} outputs in {tiles} tiles"


@pytest.mark.points(
    1,
    tier="processes",
    seconds=60,
    read=TILES,
    hint="each tile adds to the gradient of x; its slice of dy begins where the last one ended",
)
def test_tiled_backward(answers, probe):
    """Tiles: the gradients of x, of every tile's weights and of its biases."""
    needs_torch()
    for case in TILED:
        probe.check(named(case), tiled(answers, case))


@pytest.mark.points(
    1, tier="processes", seconds=60, after="test_tiled_backward", read=TILES,
    hint="all that a tile is needed for happens while it is there",
)  # fmt: skip
def test_tiled_backward_once(answers):
    """Tiles: each is read once, and its gradients are given once."""
    needs_torch()
    for case in TILED:
        report = tiled(answers, case)
        expect(f"{named(case)}: reads of each tile", report["reads"], [1] * case[3])
        expect(f"{named(case)}: gradients given of each", report["gives"], [1] * case[3])


@pytest.mark.points(
    1,
    tier="processes",
    seconds=60,
    after="test_tiled_backward",
    read=TILES,
    hint="give a tile's gradients away, and let go of its weights, before you read the next",
)
def test_tiled_backward_memory(answers):
    """Tiles: beside the gradient of x, one tile's weights and gradients."""
    needs_torch()
    for case in TILED:
        tokens, inputs, outputs, tiles = case
        rows = -(-outputs // tiles)
        # The weights may have gone before their gradient is made; the gradient of x is there.
        least = tokens * inputs + rows * inputs
        most = least + rows * inputs + rows
        alive = tiled(answers, case)["alive"]
        between(f"{named(case)}: bytes alive", alive, 8 * least, 8 * most + 64)
