"""Sends each chunk straight to its target."""

KIND = "other mechanism"
FAILS = ["test_swap_rails", "test_swap_steps", "test_swap_any"]


def swap(nodes, local):
    n = nodes * local
    pairs = [[(r, (r + k) % n) for r in range(n)] for k in range(1, n)]
    return [[Send(s, t, s * n + t, False) for s, t in step] for step in pairs]
