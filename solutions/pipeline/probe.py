"""What the tests of this topic share, and what runs for them beside the answers."""

from bisect import bisect_left
from importlib.util import find_spec
from itertools import takewhile, zip_longest
from pathlib import Path

from weft.grade import WrongAnswer, at_most, expect
from weft.grade.worker import load
from weft.plan.pipeline import Action, Plan, looped
from weft.plan.schedule import validate
from weft.plan.simulate import Deadlock, simulate

RANKS = Path(__file__).with_name("ranks.py")
STUCK = "an F needs that of the stage before, a BW that of the stage after: who has it to run?"


def warm() -> None:
    """Import what is slow to import; without torch only the page's functions can run."""
    if find_spec("torch"):
        import weft.run.world  # noqa: F401


def on_ranks(answers, cases, seed):
    """Run `run_row` on real ranks; what each measured for each (plan, lengths, width)."""
    from weft.grade import ranks

    ranks.written(answers, "run_row", [], {}, [], [], None, None, None)
    run = [(case[0].p, ran(case), *case, seed) for case in cases]
    return ranks.run(answers, RANKS, "one_rank", run)


# --- in the grader's process ----------------------------------------------------------------------


def as_plan(case, rows, p, m, v=1):
    """The rows as a valid plan, or an AssertionError that says what is wrong with them."""
    if not isinstance(rows, list | tuple) or len(rows) != p:
        got = f"{len(rows)} rows" if isinstance(rows, list | tuple) else repr(rows)
        raise WrongAnswer(f"{case}: expected a list of {p} rows, one per rank, got {got}", "")
    for r, row in enumerate(rows):
        for action in row if isinstance(row, list | tuple) else [row]:
            _check_triple(f"{case}: rank {r}", action)
    plan = Plan(case, p, m, v, tuple(tuple(Action(*x) for x in row) for row in rows), looped(p, v))
    try:
        validate(plan)
    except ValueError as error:
        raise AssertionError(f"{case}: {error}") from None
    return plan


def _check_triple(where, action):
    triple = isinstance(action, list | tuple) and len(action) == 3
    if not triple or not all(isinstance(n, int) for n in action[1:]):
        raise WrongAnswer(f"{where}: expected a (kind, microbatch, stage), got {action!r}", "")
    if action[0] not in ("F", "BW"):
        raise WrongAnswer(f"{where}: expected a kind of F, BW, got {action[0]!r}"[:500], "")


def played(plan, f=1.0, b=1.0, w=1.0, c=0.0):
    """The plan's timeline, or an AssertionError that says where it is stuck."""
    try:
        return simulate(plan, f, b, w, c)
    except Deadlock as error:
        stuck = ", ".join(f"rank {r} waits before {action}" for r, action in error.blocked)
        raise WrongAnswer(f"{plan.name}: no rank can go on: {stuck}", STUCK) from None


def live(plan) -> list[int]:
    """The most microbatches (of a stage) that each rank has between F and BW."""
    peaks = []
    for row in plan.rows:
        now = peak = 0
        for action in row:
            now += {"F": 1, "BW": -1}[action.kind]
            peak = max(peak, now)
        peaks.append(peak)
    return peaks


# --- slow messages --------------------------------------------------------------------------------


def eager_time(rows, f, bw, hops) -> float:
    """When the last action ends, with hops[s] between stages s and s + 1; inf if stuck."""
    p = len(rows)
    done, at, free = {}, [0] * p, [0] * p
    moved = True
    while moved:
        moved = False
        for s in range(p):
            while at[s] < len(rows[s]):
                kind, i, _ = rows[s][at[s]]
                before = (kind, i, s - 1 if kind == "F" else s + 1)
                outside = before[2] in (-1, p)
                if not outside and before not in done:
                    break
                came = 0 if outside else done[before] + hops[min(s, before[2])]
                free[s] = max(free[s], came) + (f if kind == "F" else bw)
                done[kind, i, s] = free[s]
                at[s], moved = at[s] + 1, True
    stuck = any(at[s] < len(rows[s]) for s in range(p))
    return float("inf") if stuck else max(free)


def eager_least(f, bw, hops, m) -> int:
    """What a step takes whose last stage never pauses."""
    return (m + len(hops)) * (f + bw) + 2 * sum(hops)


# --- groups ---------------------------------------------------------------------------------------


def flexible_limits(p, m, v) -> tuple[list[int], int]:
    """The most activations of each rank, and the makespan at f = b = w = 1."""
    if m < p:
        return [(v - 1) * m + min(m, p - r) for r in range(p)], 3 * (v * p + m - 1)
    largest = {n: n for n in range(p, 2 * p)}  # of n microbatches, the largest group at its least
    for n in range(2 * p, m + 1):
        largest[n] = min(max(g, largest[n - g]) for g in range(p, min(2 * p - 1, n - p) + 1))
    return [(v - 1) * largest[m] + p - r for r in range(p)], 3 * (v * m + p - 1)


# --- a cut ----------------------------------------------------------------------------------------


class Rank:
    """What rank s of p needs with n layers, r of them recomputed."""

    def __init__(self, cluster, model, batch, p, s):
        self.cluster, self.model, self.p, self.s = cluster, model, p, s
        self.replicas = cluster["nodes"] // p
        self.m = batch // self.replicas
        self.last = s == p - 1

    def nbytes(self, n, r) -> float:
        """Bytes in memory."""
        one, p = self.model, self.p
        tables = [self.s, p - 1 - self.s].count(0)
        state = (n * one["layer"] + tables * one["table"]) * (6 * self.replicas + 12)
        entry = 2 * one["tokens"] * one["width"]
        rest = (entry * r + one["kept"] * (n - r)) * min(self.m, p - self.s)
        if r:
            rest += one["kept"] - entry
        if self.last:
            rest += 6 * one["words"] * one["tokens"]
        return state / self.replicas + rest

    def seconds(self, n, r) -> float:
        """Seconds for a microbatch."""
        one = self.model
        passes = one["layer"] * (n * 3 + r) + (one["table"] * 3 if self.last else 0)
        return 2 * one["tokens"] * passes / self.cluster["rate"]

    def fits(self, n, r) -> bool:
        return self.nbytes(n, r) <= 0.9 * self.cluster["memory"]

    def fastest(self, n) -> float:
        """Seconds with as few layers recomputed as fit; inf if none."""
        return next((self.seconds(n, r) for r in range(n + 1) if self.fits(n, r)), float("inf"))


def depths(cluster, model, batch) -> list[int]:
    """The numbers of ranks that a pipeline may have."""
    nodes = cluster["nodes"]
    every = range(1, min(nodes, model["layers"]) + 1)
    return [p for p in every if nodes % p == 0 and batch % (nodes // p) == 0]


def cut_shortest(cluster, model, batch, p) -> float:
    """Seconds of the shortest step with p ranks; inf if nothing fits."""
    L = model["layers"]
    ranks = [Rank(cluster, model, batch, p, s) for s in range(p)]
    never = float("inf")
    times = [
        list(takewhile(lambda own: own < never, map(rank.fastest, range(1, L - p + 2))))
        for rank in ranks
    ]

    def enough(most):  # whether no rank need take longer for all layers to be somewhere
        room = [sum(own <= most for own in each) for each in times]
        return min(room) > 0 and sum(room) >= L

    tried = sorted({own for each in times for own in each})
    at = bisect_left(tried, True, key=enough)
    return (ranks[0].m + p - 1) * tried[at] if at < len(tried) else never


def check_cut(told, cluster, model, batch, got, shortest=True) -> None:
    """Fail unless the cut is one, fits, takes what it says, and no other is faster."""
    allowed = depths(cluster, model, batch)
    steps = {p: cut_shortest(cluster, model, batch, p) for p in allowed}
    best = min(steps.values(), default=float("inf"))
    if got is None or best == float("inf"):
        right = "None" if best == float("inf") else f"p = {min(steps, key=steps.get)} to fit"
        if (got is None) != (best == float("inf")):
            raise WrongAnswer(f"{told}: expected {right}, got {got!r}"[:1000])
        return
    whole = lambda x: type(x) is int  # noqa: E731
    lists = lambda x: isinstance(x, list | tuple) and all(map(whole, x))  # noqa: E731
    if not isinstance(got, list | tuple) or len(got) != 4 or not (lists(got[1]) and lists(got[2])):
        form = "(p, layers of each rank, recomputed ones, seconds)"
        raise WrongAnswer(f"{told}: expected {form}, got {got!r}"[:1000], "")
    p, layers, again, seconds = got
    if not whole(p) or p not in allowed:
        text = f"{told}: expected p to be a whole number, one of {allowed}, got {p!r}"
        raise WrongAnswer(text[:1000])
    if not len(layers) == len(again) == p or sum(layers) != model["layers"] or min(layers) < 1:
        right = f"{p} numbers from 1 that sum to {model['layers']}"
        raise WrongAnswer(f"{told}: layers: expected {right}, got {layers!r}"[:1000], "")
    ranks = [Rank(cluster, model, batch, p, s) for s in range(p)]
    for s, (rank, n, r) in enumerate(zip(ranks, layers, again, strict=True)):
        name = f"{told}: p={p}, rank {s} with {n} layers"
        if not 0 <= r <= n:
            raise WrongAnswer(f"{name}: expected to recompute 0 to {n} of them, got {r}", "")
        if not rank.fits(n, r):
            most = f"at most {0.9 * rank.cluster['memory']:.6g}"
            text = f"{name}, {r} recomputed: bytes: expected {most}, got {rank.nbytes(n, r):.6g}"
            raise WrongAnswer(text)
    if not shortest:
        return
    slowest = max(rank.seconds(*own) for rank, *own in zip(ranks, layers, again, strict=True))
    right = (ranks[0].m + p - 1) * slowest
    if type(seconds) not in (int, float) or not abs(seconds) < 1e300:
        raise WrongAnswer(f"{told}: seconds: expected a number, got {seconds!r}"[:1000], "")
    expect(f"{told}: seconds with p={p}, {layers}, {again}", seconds, right, 1e-9 * right)
    if right > best * (1 + 1e-9):
        other = min(steps, key=steps.get)
        hint = OTHERWISE if steps[p] <= best * (1 + 1e-9) else None
        text = f"{told}: seconds: expected {best:.6g}, which p={other} can have, got {right:.6g}"
        raise WrongAnswer(f"{text} with p={p}, {layers}, {again}"[:1500], hint)


OTHERWISE = "this p can do better: deal the layers so that the slowest rank is as fast as can be"


# --- ranks ----------------------------------------------------------------------------------------


def alone(plan, lengths, width, seed):
    """The same step in one process."""
    return load(RANKS, "ranks", known=False).alone(plan, lengths, width, seed)


def check_result(case, seed, ranks):
    """Fail unless the loss and every gradient are those of one process, to 1e-12."""
    told, right = ran(case), alone(*case, seed)
    expect(f"{told}: loss", sum(x["loss"] for x in ranks), right["loss"], within=1e-12)
    for r, measured in enumerate(ranks):
        for stage, got in measured["gradients"].items():
            close_to(f"{told}: rank {r}, stage {stage}", got, right["gradients"][stage])


def check_messages(case, ranks):
    """Fail unless each rank sends and receives its row's messages, once each and in its order."""
    plan, lengths, width = case
    for r, measured in enumerate(ranks):
        row = [action for action in plan.rows[r] if action.kind[:4] in ("SEND", "RECV")]
        told = f"{ran(case)}: rank {r}"
        for at, (got, action) in enumerate(zip_longest(measured["messages"], row, fillvalue="")):
            name = f"{told}: message {at + 1} of {len(row)}"
            expect(name, got or "none", str(action) or "none")
        sent = [lengths[action.microbatch] for action in row if action.kind.startswith("SEND")]
        expect(f"{told}: bytes sent", measured["sent"], 8 * width * sum(sent))


NAMES = {
    "F": "forward of microbatch {} on stage {}",
    "B": "input gradient of microbatch {} on stage {}",
    "W": "weight gradient of microbatch {} on stage {}",
}
EARLY = "ask autograd for one half: of the stage's input in B, with the graph kept for W"
AGAIN = "W needs no gradient of the input: name the parameters that you want gradients of"
TWICE = "keep what F has made until its W: running a stage again takes time"


def in_words(event) -> str:
    """What is written down of a rank, to be told."""
    if not event:
        return "nothing more"
    kind, i, stage = event
    if i is None:
        return f"one more forward on stage {stage}"
    return NAMES.get(kind, kind + " of microbatch {}, stage {}").format(i, stage)


def check_halves(case, ranks):
    """Fail with the first thing that a rank computes or sends in another place than its row's."""
    for r, measured in enumerate(ranks):
        row = [tuple(action) for action in case[0].rows[r]]
        row = [one for one in row if not (one[0] == "B" and one[2] == 0)]  # nothing to compute
        log = [tuple(one) for one in measured["log"]]
        for at, (got, right) in enumerate(zip_longest(log, row)):
            kind = got and got[0]
            seen = got in log[:at]
            hint = {"F": TWICE, "W": EARLY, "B": AGAIN if seen else None}.get(kind)
            name = f"{ran(case)}: rank {r}: step {at + 1} of {len(row)}"
            expect(name, in_words(got), in_words(right), hint=hint)


def check_alive(case, ranks):
    """Fail where a rank keeps more microbatches alive than its plan.

    One more than the plan's may be there, because names of the one that has just had its W may
    still hold it when the next F runs.
    """
    limits = played(case[0]).peak_live
    for r, measured in enumerate(ranks):
        at_most(f"{ran(case)}: microbatches alive on rank {r}", measured["alive"], limits[r] + 1)
        name = f"{ran(case)}: tensors that rank {r} has received, or a stage has given, and keeps"
        at_most(name, measured["tensors"], most_tensors(case[0], r) + 3, FORGET)


FORGET = "what you keep beside the graph counts, too: a dict keeps its entries until you pop them"


def most_tensors(plan, r) -> int:
    """The most tensors that a rank has received or made in F, and needs until a W.

    Those that the check allows beyond them are input, output and gradient of the microbatch that
    has just had its W. An output that the next stage has on the same rank is needed by both.
    """
    row = [tuple(action) for action in plan.rows[r]]
    ends = {one[1:]: at for at, one in enumerate(row) if one[0] == "W"}
    needed = []
    for at, (kind, i, s) in enumerate(row):
        if kind in ("F", "RECV_F", "RECV_B"):
            end = max(ends[i, s], ends.get((i, s + 1), 0) if kind == "F" else 0)
            needed.append(range(at, end))
    return max(sum(at in each for each in needed) for at in range(len(row)))


def ran(case):
    """A case in words."""
    plan, lengths, width = case
    return f"run_row, {plan.name}, p={plan.p}, microbatches of {lengths} rows, {width=}"


def close_to(case, got, expected, within=1e-12):
    """Gradients, parameter by parameter, or an AssertionError that names the first wrong one."""
    for name, mine, theirs in zip(("weight", "bias"), got, expected, strict=True):
        if mine is None:
            raise AssertionError(f"{case}: expected a gradient of its {name}, got none")
        for i, (x, y) in enumerate(zip(mine, theirs, strict=True)):
            expect(f"{case}: gradient of {name}[{i}]", x, y, within=within)
