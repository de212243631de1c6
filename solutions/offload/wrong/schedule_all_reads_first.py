"""Reads everything before anything else."""

FAILS = [
    "test_schedule_buffers",
    "test_schedule_overlap",
]


def schedule(pieces, buffers):
    return [(kind, i) for kind in ("read", "compute", "write") for i in range(pieces)]
