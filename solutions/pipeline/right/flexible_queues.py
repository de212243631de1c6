"""Keeps at most so many alive: takes a forward while there is room, else a backward."""


def flexible(p, m, v):
    from collections import deque

    groups = [[]]
    for i in range(m):
        size = (m - (i - len(groups[-1]))) // max(1, (m - (i - len(groups[-1]))) // p)
        if len(groups[-1]) >= size:
            groups.append([])
        groups[-1].append(i)
    rows = []
    for rank in range(p):
        room = (v - 1) * max(map(len, groups)) + min(m, p - rank)
        down = deque(("F", i, c * p + rank) for g in groups for c in range(v) for i in g)
        up = deque(("BW", i, c * p + rank) for g in groups for c in reversed(range(v)) for i in g)
        row, alive = [], 0
        while up:
            takes = bool(down) and alive < room
            row.append(down.popleft() if takes else up.popleft())
            alive += 1 if takes else -1
        rows.append(row)
    return rows
