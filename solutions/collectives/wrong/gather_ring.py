"""Sends each chunk round the ring, a place in each step."""

KIND = "too much time"
FAILS = ["test_gather_steps", "test_gather_far", "test_gather_any"]


def gather(n):
    right = [(r + 1) % n for r in range(n)]
    return [[Send(r, right[r], (r - s) % n, False) for r in range(n)] for s in range(n - 1)]
