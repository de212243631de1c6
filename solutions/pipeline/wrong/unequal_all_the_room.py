"""Every stage fills all the room that it has, whether that helps or not."""

FAILS = [
    "test_unequal_any",
    "test_unequal_memory",
    "test_unequal_time",
]


def unequal(f, bw, m, limit):
    room = [min(limit[: stage + 1]) for stage in range(len(f))]
    return [_keep(stage, m, limit[stage]) for stage, most in enumerate(room)]
