"""Pairs key by key, in spans between global tokens; tiles as merged intervals."""


def tally(T: int, w: int, marked: list[int], rows: int, columns: int) -> tuple[int, int]:
    pairs = sum(range(1, min(w, T) + 1)) + max(0, T - w) * w
    known = 0
    for i in marked:
        hidden = max(0, i - w + 1)
        pairs += hidden - sum(1 for j in marked[:known] if j < hidden)
        pairs += max(0, T - (i + w))
        known += 1
    tiles = 0
    spots = list(dict.fromkeys(j // columns for j in marked))
    at, before = 0, 0
    for first in range(0, T, rows):
        last = min(T, first + rows) - 1
        whole = False
        while at < len(marked) and marked[at] <= last:
            at, whole = at + 1, True
        low = 0 if whole or first < w else (first - w + 1) // columns
        while before < len(spots) and spots[before] < low:
            before += 1
        tiles += last // columns - low + 1
        if low > 0:
            tiles += min(before, len(spots))
    return pairs, tiles
