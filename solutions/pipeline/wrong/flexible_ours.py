"""Calls the library's schedule, with a group as large as it takes."""

KIND = "library's own"
FAILS = [
    "test_flexible_order",
    "test_flexible_memory",
    "test_flexible_time",
    "test_flexible_any",
]


def flexible(p, m, v):
    from weft.plan.pipeline import SCHEDULES

    groups = max(1, m // p)
    return [list(row) for row in SCHEDULES["interleaved"](p, m, v, -(-m // groups)).rows]
