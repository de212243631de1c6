"""Sends all that it has in the last step, too."""

KIND = "too many bytes"
FAILS = ["test_gather", "test_gather_steps", "test_gather_far", "test_gather_any"]


def gather(n: int) -> list[list[Send]]:
    steps, far, had = [], 1 << (n - 1).bit_length(), [0]  # chunks r - o of rank r, for o in had
    while far > 1:
        far //= 2
        more = had
        steps.append([Send(r, (r + far) % n, (r - o) % n, False) for r in range(n) for o in more])
        had += [o + far for o in more if o + far < n]
    return steps
