"""Asks the library's own, which is closed while grading."""

KIND = "library's own"
FAILS = [
    "test_tiling_time",
    "test_tiling",
    "test_tiling_real",
    "test_tiling_any",
]


def tiling(m, n, k, chip):
    from weft.plan.roofline.levels import tiled_matmul

    times = {}
    for side in (16, 32, 64, 128):
        work = tiled_matmul(m, n, k, 2, side, side)
        times[side] = max(work.flops / chip["rate"], work.bytes / chip["l2"], chip["start"])
    best = min(times, key=times.get)
    return best, best, 1, times[best]
