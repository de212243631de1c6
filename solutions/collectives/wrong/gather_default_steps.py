"""The steps are a default argument, which is the same list in every call."""

KIND = "state kept"
FAILS = ["test_gather", "test_gather_steps", "test_gather_far", "test_gather_any"]


def gather(n: int, steps=[]) -> list[list[Send]]:
    far, had = 1 << (n - 1).bit_length(), [0]  # chunks r - o of rank r, for o in had
    while far > 1:
        far //= 2
        more = [o for o in had if o + far < n]
        steps.append([Send(r, (r + far) % n, (r - o) % n, False) for r in range(n) for o in more])
        had += [o + far for o in more]
    return steps
