"""Divides with a point, and rounds at the end."""

KIND = "precision"
FAILS = [
    "test_tally_long",
    "test_tally_any",
]


def tally(T: int, w: int, marked: list[int], rows: int, columns: int) -> tuple[int, int]:
    near = min(w, T)
    pairs = T * near - near * (near - 1) / 2
    for i in marked:
        pairs += max(0, T - i - w) + max(0, i + 1 - w) - bisect_right(marked, i - w)
    held = sorted({i // columns for i in marked})
    tiles = 0
    for first in range(0, T, rows):
        end = min(T, first + rows)
        low = max(0, first - w + 1) // columns
        if bisect_left(marked, first) < bisect_left(marked, end):
            low = 0
        tiles += (end - 1) // columns + 1 - low + bisect_left(held, low)
    return int(pairs), tiles
