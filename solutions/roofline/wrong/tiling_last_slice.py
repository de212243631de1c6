"""Takes of the last slice what there is of it."""

KIND = "edge of the range"
FAILS = [
    "test_tiling_time",
    "test_tiling",
    "test_tiling_real",
    "test_tiling_any",
]


def tiling(m: int, n: int, k: int, chip: dict) -> tuple[int, int, int, float]:
    sms, sides, slices = chip["sms"], [16, 32, 64, 128, 256], -(-k // 64)
    best = None
    for tile_m, tile_n, split in product(sides, sides, (1, 2, 4, 8, 16)):
        if split > slices or 4 * tile_m * tile_n > 131072:
            continue
        if 4 * 64 * 2 * (tile_m + tile_n) > chip["shared"]:
            continue
        deep = min(k, 64 * -(-slices // split))
        computing = 2 * tile_m * tile_n * deep / (chip["rate"] / sms)
        loading = 2 * (tile_m + tile_n) * deep / (chip["l2"] / sms)
        waves = -(-(-(-m // tile_m) * -(-n // tile_n) * split) // sms)
        parts = 4 * split * m * n if split > 1 else 0
        moved = 2 * (m * k + k * n) + (parts or 2 * m * n)
        seconds = max(waves * max(computing, loading), moved / chip["memory"], chip["start"])
        if parts:
            seconds += max((parts + 2 * m * n) / chip["memory"], chip["start"])
        if best is None or seconds < best[3]:
            best = tile_m, tile_n, split, seconds
    return best
