"""Swaps with partners that differ in one bit, for powers of two."""

KIND = "special case"
FAILS = ["test_gather", "test_gather_steps", "test_gather_far", "test_gather_any"]


def gather(n):
    steps, far = [], 1
    while far < n:
        everyone = range(n - n % (2 * far))
        had = [[r // far * far + i for i in range(far)] for r in everyone]
        steps.append([Send(r, r ^ far, c, False) for r in everyone for c in had[r]])
        far *= 2
    return steps
