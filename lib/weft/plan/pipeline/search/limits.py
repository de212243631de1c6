"""A lower bound on the time of a step, from its work, its dependencies and its memory."""

from math import ceil

from weft.plan.pipeline.search.task import SearchTask


def least(task: SearchTask) -> float:
    """A lower bound on the paper's cost: the longest first start to last end.

    Rank i works from its first forward until its last weight gradient. In between,
    its first microbatch has to travel down to some rank j, j has to come to its
    last backward, and that gradient has to travel back up. The worst pair (i, j)
    sets the bound.
    """
    best = max(_alone(task, rank) for rank in range(task.p))
    for j in range(task.p):
        last = _last_backward(task, j)
        way = 0.0
        for i in range(j, -1, -1):
            if i < j:
                way += task.f[i] + task.b[i] + 2 * task.c
            best = max(best, way + last + task.w[i])
    return best


def _round_trip(task: SearchTask, rank: int) -> float:
    """From the start of a forward on a rank to the end of its backward, when nobody waits."""
    hops = 2 * (task.p - 1 - rank)
    return sum(task.f[rank:]) + sum(task.b[rank:]) + hops * task.c


def _alone(task: SearchTask, rank: int) -> float:
    """The least time of one rank by itself: its work, and the wait for its first gradient.

    Until that gradient comes there is nothing to do but the forwards that memory allows.
    And each microbatch takes up its memory for a round trip, so m of them take m / memory trips.
    """
    trip, limit = _round_trip(task, rank), task.memory[rank]
    wait = trip - task.b[rank] - limit * task.f[rank]
    area = task.m * (trip + task.kept * task.w[rank]) / limit
    return max(task.work[rank] + max(0.0, wait), area)


def _last_backward(task: SearchTask, rank: int) -> float:
    """From a rank's first start to the end of its last backward, at the least."""
    m, f, b, w = task.m, task.f[rank], task.b[rank], task.w[rank]
    limit, trip = task.memory[rank], _round_trip(task, rank)
    before = _before_last_forward(task, rank)
    last_forward = m * f + min(x * b + y * w for x, y in before)
    if m > limit:  # then some backward comes before the last forward, and after a round trip
        rest = min((x - 1) * b + y * w for x, y in before)
        last_forward = max(last_forward, trip + (m - limit) * f + rest)
    release = w if task.kept == 1 else 0.0  # a whole activation is released only by its W
    rounds = ceil(m / limit) * (trip + release) - release
    must = min(y for _, y in before)
    return max(last_forward + trip - f, m * (f + b) + must * w, rounds)


def _before_last_forward(task: SearchTask, rank: int) -> list[tuple[int, int]]:
    """The (backwards, weight gradients) that leave room for the last forward.

    Holding m - x whole activations and the kept part of x - y must not exceed the memory.
    """
    room = []
    for x in range(task.m):
        over = task.m - x * (1 - task.kept) - task.memory[rank]
        if over <= 1e-9:
            room.append((x, 0))
        elif task.kept and (y := ceil(over / task.kept - 1e-9)) <= x:
            room.append((x, y))
    return room
