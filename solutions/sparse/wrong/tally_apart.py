"""Takes a global token for near that is as far away as the window is long."""

KIND = "off by one"
FAILS = [
    "test_tally_pairs",
    "test_tally_tiles",
    "test_tally_long",
    "test_tally_any",
]


def tally(T: int, w: int, marked: list[int], rows: int, columns: int) -> tuple[int, int]:
    near = min(w, T)
    pairs = T * near - near * (near - 1) // 2
    for i in marked:
        pairs += max(0, T - i - w) + max(0, i + 1 - w) - bisect_left(marked, i - w)
    held = sorted({i // columns for i in marked})
    tiles = 0
    for first in range(0, T, rows):
        end = min(T, first + rows)
        low = max(0, first - w + 1) // columns
        if bisect_left(marked, first) < bisect_left(marked, end):
            low = 0
        tiles += (end - 1) // columns + 1 - low + bisect_left(held, low)
    return pairs, tiles
