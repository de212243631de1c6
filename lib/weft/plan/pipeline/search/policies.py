"""List scheduling: by the clock, each rank that is free takes the action that the rules prefer."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from weft.plan.pipeline.search.task import SearchTask


@dataclass(frozen=True)
class SearchPolicy:
    """The choices that the rules leave open.

    `ahead`: by rank, the most forwards it may be ahead of its backwards. `prefers`: "F", "B", or
    "turns" where both could run. `early`, `late`: how long a rank may stand idle, by rank, rather
    than let a W delay the next F or B; `early` holds until its last forward.
    """

    ahead: tuple[int, ...]
    prefers: str
    early: tuple[float, ...]
    late: tuple[float, ...]


@dataclass
class _Rank:
    """What a rank has done, what has come for it, and until when it is busy."""

    order: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=lambda: {"F": 0, "B": 0, "W": 0})
    inbox: dict[str, list[float]] = field(default_factory=lambda: {"F": [], "B": []})
    free: float = 0.0
    idle: float = 0.0
    last: str = "B"


def play(task: SearchTask, policy: SearchPolicy) -> tuple[str, ...]:
    """The order in which each rank acts when all follow the rules.

    Every message makes its receiver look again, and so does the end of each action. A rank that
    has anything to do does it, or waits for a message that is on its way, so all of them finish.
    """
    ranks = [_Rank() for _ in range(task.p)]
    ranks[0].inbox["F"] = [0.0] * task.m
    cost = {"F": task.f, "B": task.b, "W": task.w}
    events = [(0.0, number) for number in range(task.p)]
    while events:
        now, number = heappop(events)
        rank = ranks[number]
        if now < rank.free or rank.done["W"] == task.m:
            continue
        kind, start = _choose(task, policy, number, rank, now)
        if kind is None:
            continue
        if rank.order:
            rank.idle += start - rank.free
        rank.free = start + cost[kind][number]
        rank.order.append(kind)
        rank.done[kind] += 1
        heappush(events, (rank.free, number))
        if kind == "W":
            continue
        rank.last = kind
        target = number + (1 if kind == "F" else -1)
        if target == task.p:
            rank.inbox["B"].append(rank.free)  # the last stage turns round at once
        elif target >= 0:
            ranks[target].inbox[kind].append(rank.free + task.c)
            heappush(events, (rank.free + task.c, target))
    return tuple("".join(rank.order) for rank in ranks)


def _choose(
    task: SearchTask, policy: SearchPolicy, number: int, rank: _Rank, now: float
) -> tuple[str | None, float]:
    """What a free rank does now and from when; None if it had better wait."""
    done, soon = rank.done, now + task.rounding
    forward = backward = inf
    allowed = done["F"] - done["B"] < policy.ahead[number]
    fits = task.held(done) + 1 <= task.memory[number] + 1e-9
    if done["F"] < len(rank.inbox["F"]) and allowed and fits:
        forward = rank.inbox["F"][done["F"]]
    if done["B"] < len(rank.inbox["B"]):
        backward = rank.inbox["B"][done["B"]]
    turn = policy.prefers == "B" or (policy.prefers == "turns" and rank.last == "F")
    if backward <= soon and (turn or forward > soon):
        return "B", max(now, backward)
    if forward <= soon:
        return "F", max(now, forward)
    gap = min(forward, backward) - now
    if done["B"] > done["W"]:
        delays = gap < task.w[number] - task.rounding
        spent = rank.idle + gap - task.rounding
        if not delays or spent > _patience(task, policy, number, done):
            return "W", now
    return None, now


def _patience(task: SearchTask, policy: SearchPolicy, number: int, done: dict[str, int]) -> float:
    """How much idle time a rank may have had by now; one W's worth is saved for its last B."""
    if done["F"] < task.m:
        return policy.early[number]
    return policy.late[number] - (task.w[number] if done["B"] < task.m - 1 else 0.0)
