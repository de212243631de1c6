"""Sends to the neighbour first, so that the last and largest messages go far."""

KIND = "wrong order"
FAILS = ["test_gather_far", "test_gather_any"]


def gather(n):
    steps, had = [], 1
    while had < n:
        more = range(min(had, n - had))
        steps.append([Send(r, (r + had) % n, (r - o) % n, False) for r in range(n) for o in more])
        had += len(more)
    return steps
