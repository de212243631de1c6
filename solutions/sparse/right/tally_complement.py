"""What nobody sees, taken away from all."""

import bisect
import math


def tally(T: int, w: int, marked: list[int], rows: int, columns: int) -> tuple[int, int]:
    far = max(0, T - w)
    hidden = far * (far + 1) // 2
    lost = 0
    for i in marked:
        after = i + w
        lost += max(0, i - w + 1) + max(0, T - after)
        lost -= sum(1 for j in marked if j >= after)
    known = sorted(set(j // columns for j in marked))
    owners = set(i // rows for i in marked)
    tiles = 0
    for r in range(math.ceil(T / rows)):
        end = min(T, r * rows + rows) - 1
        start = 0 if r in owners else max(0, r * rows - w + 1)
        tiles += end // columns - start // columns + 1
        tiles += bisect.bisect_left(known, start // columns)
    return T * (T + 1) // 2 - hidden + lost, tiles
