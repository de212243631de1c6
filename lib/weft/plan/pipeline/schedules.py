"""Pipeline schedules as data: which rank runs which piece of work, in which order.

A model of p*v virtual stages is spread over p ranks and a batch is cut into m microbatches.
A schedule is then nothing but one list of actions per rank. Here every list is written from two
ideas: `_weave`, which runs forwards a fixed distance ahead of backwards, and `_phases`, which
repeats short bars of work on a model folded into a V.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import prod

from weft.plan.arguments import few, sizes, whole
from weft.plan.schedule import Action, Plan


def looped(p: int, v: int = 1) -> tuple[int, ...]:
    """Stage s on rank s mod p: the model goes round the ranks v times.

    >>> looped(p=3, v=2)
    (0, 1, 2, 0, 1, 2)
    """
    p, v = _sizes(p=p, v=v)
    return tuple(stage % p for stage in range(p * v))


def folded(p: int) -> tuple[int, ...]:
    """Two stages per rank on a V: down the ranks, then back up, so rank 0 holds both ends.

    >>> folded(p=3)
    (0, 1, 2, 2, 1, 0)
    """
    (p,) = _sizes(p=p)
    return (*range(p), *reversed(range(p)))


def _sizes(**given: int) -> tuple[int, ...]:
    """Sizes whose product is the actions of one kind, which are all made."""
    checked = sizes(**given)
    few(prod(checked), "actions", **given)
    return checked


# --- one forward, one backward -------------------------------------------------------------------


def _weave(
    forwards: Sequence[Action],
    backwards: Sequence[Action],
    ahead: int,
    defer: int | None = None,
) -> tuple[Action, ...]:
    """Run `ahead` forwards, then alternate forward and backward, then drain.

    With `defer`, each backward is split: B runs in its place and W is deferred
    until more than `defer` of them are. While draining one W follows each B, and
    what is still deferred comes last.
    """
    ahead = min(ahead, len(forwards))
    row, deferred = list(forwards[:ahead]), deque()

    def backward(action: Action, most: int) -> None:
        if defer is None:
            row.append(action)
            return
        row.append(action._replace(kind="B"))
        deferred.append(action._replace(kind="W"))
        if len(deferred) > most:
            row.append(deferred.popleft())

    steady = len(forwards) - ahead
    for f, b in zip(forwards[ahead:], backwards[:steady], strict=True):
        row.append(f)
        backward(b, most=defer or 0)
    for b in backwards[steady:]:
        backward(b, most=0)
    return (*row, *deferred)


def _straight(
    name: str,
    p: int,
    m: int,
    ahead: Callable[[int], int],
    defer: Callable[[int], int] | None = None,
) -> Plan:
    """A plan of one stage per rank; only `ahead` and `defer`, by stage, tell schedules apart."""
    p, m = _sizes(p=p, m=m)
    rows = tuple(
        _weave(
            [Action("F", i, stage) for i in range(m)],
            [Action("BW", i, stage) for i in range(m)],
            ahead(stage),
            defer(stage) if defer else None,
        )
        for stage in range(p)
    )
    return Plan(name, p, m, 1, rows, looped(p))


def gpipe(p: int, m: int) -> Plan:
    """All forwards, then all backwards.

    Every stage keeps all m microbatches alive between the two, so memory grows with
    m, while the bubble, (p - 1) / (m + p - 1) of the step, shrinks with it.

    Huang et al. 2019, section 2.3.

    >>> for row in gpipe(p=2, m=3).rows: print(*row)
    F0 F1 F2 BW0 BW1 BW2
    F0 F1 F2 BW0 BW1 BW2
    """
    return _straight("gpipe", p, m, ahead=lambda stage: m)


def one_f_one_b(p: int, m: int) -> Plan:
    """Warm up, then alternate one forward with one backward, then drain.

    Stage s runs ahead of its first backward by the number of stages after it, so it
    never keeps more than p - s microbatches alive: depth bounds the memory of 1F1B,
    where m bounds GPipe's. The bubble is the same, (p - 1) / (m + p - 1) of the
    step.

    Narayanan et al. 2021, section 2.2.

    >>> for row in one_f_one_b(p=3, m=4).rows: print(*row)
    F0 F1 F2 BW0 F3 BW1 BW2 BW3
    F0 F1 BW0 F2 BW1 F3 BW2 BW3
    F0 BW0 F1 BW1 F2 BW2 F3 BW3
    """
    return _straight("one_f_one_b", p, m, ahead=lambda stage: p - 1 - stage)


def zb_h1(p: int, m: int) -> Plan:
    """1F1B whose weight gradients wait: a third of the bubble is left.

    Nothing downstream needs W. Stage s defers up to s of them, which is exactly the
    room that 1F1B leaves it below the first stage's memory: the peak stays at p
    activations on every stage. The third holds for equal durations.

    Qi et al. 2024, section 2.3.

    >>> for row in zb_h1(p=2, m=3).rows: print(*row)
    F0 F1 B0 W0 F2 B1 W1 B2 W2
    F0 B0 F1 B1 W0 F2 B2 W1 W2
    """
    return _straight(
        "zb_h1",
        p,
        m,
        ahead=lambda stage: p - 1 - stage,
        defer=lambda stage: stage,
    )


def zb_h2(p: int, m: int) -> Plan:
    """Twice the warm-up of ZB-H1: no bubble, for twice the memory.

    Stage s runs 2 (p - 1 - s) forwards ahead and defers up to 2 s weight
    gradients, so every stage peaks at 2 p - 1 activations. Measured from each stage's own
    first action to its last, nobody waits when F, B and W take equally long and m
    is at least 2 p - 1.

    Qi et al. 2024, section 2.3.
    """
    return _straight(
        "zb_h2",
        p,
        m,
        ahead=lambda stage: 2 * (p - 1 - stage),
        defer=lambda stage: 2 * stage,
    )


def interleaved(p: int, m: int, v: int = 2, group: int | None = None) -> Plan:
    """1F1B on v thin stages per rank: idle 1 / v of the time, more messages and activations.

    Rank r holds stages r, r + p, r + 2p and so on, and works through the microbatches in groups: a
    group's forwards through its first stage, then the same group through the next. The bubble is
    (p - 1) / (v m + p - 1) of the step. A group is p microbatches, as in the paper, unless
    `group` says more: up to m, which is breadth-first. What is left for the last group is nothing
    or at least p, so that a microbatch is back when its rank comes to it. A larger group gives
    messages more time, and holds group - p activations more for each stage of a rank but one.

    Narayanan et al. 2021, section 2.2; Llama Team 2024, section 3.3.2, for groups of other sizes.

    >>> print(*interleaved(p=2, m=2, v=2).rows[0])
    F0 F1 F0 F1 BW0 BW1 BW0 BW1
    >>> print(*interleaved(p=2, m=5, v=2, group=3).rows[1])
    F0 F1 F2 F0 BW0 F1 BW1 F2 BW2 F3 BW0 F4 BW1 F3 BW2 F4 BW3 BW4 BW3 BW4
    """
    p, m, v = _sizes(p=p, m=m, v=v)
    if group is None:
        if m % p:
            raise ValueError(f"m is {m}, must be a multiple of p = {p} for interleaving")
        group = p
    group = whole("group", group, least=p, most=max(m, p))
    if 0 < m % group < p:
        raise ValueError(
            f"m is {m}, which leaves {m % group} for the last group of {group}: must leave none or "
            f"at least p = {p}"
        )

    def row(rank: int) -> tuple[Action, ...]:
        slots = [
            (i, chunk)
            for first in range(0, m, group)
            for chunk in range(v)
            for i in range(first, min(first + group, m))
        ]
        forwards = [Action("F", i, rank + p * chunk) for i, chunk in slots]
        backwards = [Action("BW", i, rank + p * (v - 1 - chunk)) for i, chunk in slots]
        # Two steps per rank below: one would do while messages take no time, and not when they do.
        ahead = (v - 1) * group + (p - 1 - rank) * (1 if v == 1 else 2)
        return _weave(forwards, backwards, ahead)

    return Plan("interleaved", p, m, v, tuple(row(rank) for rank in range(p)), looped(p, v))


# --- a model folded into a V ----------------------------------------------------------------------

DOWN, UP = 0, 1  # the two legs of the V: a rank has one stage on each


def _phases(
    name: str,
    p: int,
    m: int,
    phases: Callable[[int], Iterable[tuple[int, list]]],
    run_in: int = 0,
) -> Plan:
    """A V schedule from phases: (how often, the bar of steps to repeat), per rank.

    A step (kind, leg) takes that leg's next microbatch; the step "W" is that of the B that has
    waited longest for its W. A schedule that needs `run_in` microbatches to get going is written
    for that many, and those that do not exist are left out.
    """
    most = max(m, run_in)

    def row(rank: int) -> tuple[Action, ...]:
        stage = {DOWN: rank, UP: 2 * p - 1 - rank}
        done = {(way, leg): 0 for way in "FB" for leg in (DOWN, UP)}
        actions, deferred = [], deque()
        for times, bar in phases(rank):
            for step in bar * times:
                if step == "W":
                    actions.append(deferred.popleft())
                    continue
                kind, leg = step
                way = kind[0]
                action = Action(kind, done[way, leg], stage[leg])
                done[way, leg] += 1
                actions.append(action)
                if kind == "B":
                    deferred.append(action._replace(kind="W"))
        assert set(done.values()) == {most} and not deferred
        return tuple(action for action in actions if action.microbatch < m)

    return Plan(name, p, m, 2, tuple(row(rank) for rank in range(p)), folded(p))


def zb_v(p: int, m: int) -> Plan:
    """Zero bubble in the memory of 1F1B, on a model folded into a V.

    Rank 0 holds the first and the last stage, so its first backward can start as
    soon as one microbatch has gone down and up the V. When F, B and W take equally
    long no rank waits between its first and last action, and none holds more than 2
    p half-size activations.

    Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 3.
    """
    p, m = _sizes(p=p, m=m)
    n = max(m, 2 * p - 1)
    f0, f1, b0, b1 = ("F", DOWN), ("F", UP), ("B", DOWN), ("B", UP)

    def phases(rank: int) -> list[tuple[int, list]]:
        return [
            (2 * (p - rank) - 1, [f0]),
            (rank, [f1, f0]),
            (p - rank, [f1, b1, "W"]),
            (n - (2 * p - 1 - rank), [f0, b0, "W", f1, b1, "W"]),
            (p - 1 - rank, [b0, "W", f1, b1, "W"]),
            (rank, [b0, b1]),
            (p - rank, [b0, "W"]),
            (2 * rank, ["W"]),
        ]

    return _phases("zb_v", p, m, phases, run_in=2 * p - 1)


def dualpipe_v(p: int, m: int) -> Plan:
    """DeepSeek's V schedule: each forward of one leg next to a backward of the other.

    In the steady phase each forward is followed by a whole backward of the other
    leg, so that on a GPU the one's communication can hide behind the other's
    arithmetic. Only at the edges is the backward split. m has to be at least 2 p.

    DeepSeek-AI 2025, DualPipe; Qi 2025 for the V form.
    """
    p, m = _sizes(p=p, m=m)
    if m < 2 * p:
        raise ValueError(f"m is {m}, must be at least 2 * p = {2 * p} for dualpipe_v")
    f0, f1, bw0, bw1 = ("F", DOWN), ("F", UP), ("BW", DOWN), ("BW", UP)
    b0, b1 = ("B", DOWN), ("B", UP)

    def phases(rank: int) -> list[tuple[int, list]]:
        below = p - 1 - rank
        turn = [bw1, bw0] * (rank + 1)  # the second half of these backwards leaves its W for later
        turn[rank + 1 :] = [{bw0: b0, bw1: b1}[step] for step in turn[rank + 1 :]]
        return [
            (2 * below, [f0]),
            (rank + 1, [f0, f1]),
            (below, [b1, "W", f1]),
            (m - 2 * p + rank + 1, [f0, bw1, f1, bw0]),
            (below, [bw1, f1, bw0]),
            (1, turn),
            (below, ["W", b0]),
            (rank + 1, ["W"]),
        ]

    return _phases("dualpipe_v", p, m, phases)


SCHEDULES: dict[str, Callable[..., Plan]] = {
    schedule.__name__: schedule
    for schedule in (gpipe, one_f_one_b, interleaved, zb_h1, zb_h2, zb_v, dualpipe_v)
}
