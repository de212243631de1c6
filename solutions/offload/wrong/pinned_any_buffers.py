"""Of equal bytes takes the choice with the most buffers."""

KIND = "part left out"
FAILS = [
    "test_pinned_several",
    "test_pinned_any",
]


def pinned(sizes: list[int], align: int, most: int) -> tuple[int, list[int]]:
    best = [(0, 0, [])] + [(float("inf"), 0, [])] * len(sizes)  # of the first so many tensors
    for _ in range(min(most, len(sizes))):
        before, best = best, [*best]
        for start in range(len(sizes)):
            end = 0
            for stop in range(start, len(sizes)):
                end = -(-end // align) * align + sizes[stop]
                taken, buffers, counts = before[start]
                taken += 1 << (end - 1).bit_length()
                one = taken, buffers + 1, [*counts, stop + 1 - start]
                best[stop + 1] = min(best[stop + 1], one, key=lambda x: (x[0], -x[1]))
    return best[-1][0], best[-1][2]
